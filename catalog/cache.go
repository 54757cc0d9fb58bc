package catalog

import (
	"errors"

	"github.com/nova-store/nova/metastore"
)

// Cache keeps decoded records between the absorbs of one star. Versions make it
// safe: a stale entry conflicts, and a conflict empties it. It belongs to one task.
type Cache struct {
	most    int
	chain   ChainAt
	trim    Trim
	streams map[StreamID]*cachedStream
}

type cachedStream struct {
	stream                     Stream
	head                       Head
	streamVersion, headVersion metastore.Version
}

// NewCache returns a cache of up to most streams; when it is full it starts afresh.
func NewCache(most int) *Cache { return &Cache{most: most, streams: make(map[StreamID]*cachedStream)} }

func (k *Cache) get(id StreamID) *cachedStream { return k.streams[id] }

func (k *Cache) put(id StreamID, s *cachedStream) {
	if k.most == 0 {
		return
	}
	if len(k.streams) >= k.most {
		clear(k.streams)
	}
	k.streams[id] = s
}

func (k *Cache) purge() {
	k.chain, k.trim = ChainAt{}, Trim{}
	clear(k.streams)
}

func decodeCached(stream, head metastore.Record) (*cachedStream, error) {
	s := &cachedStream{streamVersion: stream.Version, headVersion: head.Version}
	if !stream.Exists() || !head.Exists() {
		return s, nil
	}
	var e1, e2 error
	s.stream, e1 = DecodeStream(stream.Value)
	s.head, e2 = DecodeHead(head.Value)
	return s, errors.Join(e1, e2)
}

// streamOrNil is nil where the stream has no records any more.
func (s *cachedStream) streamOrNil() *Stream {
	if s.streamVersion == 0 || s.headVersion == 0 {
		return nil
	}
	return &s.stream
}
