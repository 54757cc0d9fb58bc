package catalog

import "github.com/nova-store/nova/metastore"

// Cache keeps decoded records between the absorbs of one star. Versions make it
// safe: a stale entry conflicts, and a conflict empties it. It belongs to one task.
type Cache struct {
	most    int
	chain   ChainAt
	trim    Trim
	streams map[StreamID]*cachedStream
	bytes   int // of the streams, about
}

// cacheBytes bounds a cache beside the number of its streams: a head holds up to 64 producers.
const cacheBytes = 64 << 20

type cachedStream struct {
	bytes                      int // as counted last
	stream                     Stream
	head                       Head
	streamVersion, headVersion metastore.Version
	unreadable                 bool
}

// NewCache returns a cache of up to most streams, and 64 MiB; when it is full it starts afresh.
func NewCache(most int) *Cache { return &Cache{most: most, streams: make(map[StreamID]*cachedStream)} }

func (k *Cache) get(id StreamID) *cachedStream { return k.streams[id] }

func (k *Cache) put(id StreamID, s *cachedStream) {
	if k.most == 0 {
		return
	}
	if k.streams[id] == s {
		k.bytes -= s.bytes
	}
	s.bytes = s.size()
	if len(k.streams) >= k.most && k.streams[id] == nil || k.bytes+s.bytes > cacheBytes {
		clear(k.streams)
		k.bytes = 0
	}
	k.streams[id] = s
	k.bytes += s.bytes
}

// size is about what the entry takes in memory.
func (s *cachedStream) size() int {
	n := 512 + len(s.stream.Name) + 64*len(s.head.Chains)
	for _, p := range s.head.Producers {
		n += 96 + len(p.ID)
	}
	return n
}

func (k *Cache) purge() {
	k.chain, k.trim = ChainAt{}, Trim{}
	clear(k.streams)
	k.bytes = 0
}

// decodeCached decodes a stream's records. Where they don't decode, nothing can be judged by them: see
// [Unreadable].
func decodeCached(stream, head metastore.Record) *cachedStream {
	s := &cachedStream{streamVersion: stream.Version, headVersion: head.Version}
	if !stream.Exists() || !head.Exists() {
		return s
	}
	var e1, e2 error
	s.stream, e1 = DecodeStream(stream.Value)
	s.head, e2 = DecodeHead(head.Value)
	s.unreadable = e1 != nil || e2 != nil
	return s
}

// streamOrNil is nil where the stream has no records any more.
func (s *cachedStream) streamOrNil() *Stream {
	if s.streamVersion == 0 || s.headVersion == 0 {
		return nil
	}
	return &s.stream
}
