package catalog

import (
	"fmt"
	"strings"
)

// What whoever walks the whole keyspace needs beside the keys themselves: where each
// kind of record begins, and its key read back.

// Prefixes of the kinds of records that no prefix of one star, stream or object covers.
const (
	ChainsPrefix   = "chain/"
	TrimsPrefix    = "trim/"
	IDsPrefix      = "ids/"
	StreamsPrefix  = "stream/"
	HeadsPrefix    = "head/"
	MarksPrefix    = "mark/"
	SpansPrefix    = "span/"
	RefsPrefix     = "ref/"
	GCPrefix       = "gc/"
	DuePrefix      = "due/"
	SchedulePrefix = "schedule/denorm/"
	PendingsPrefix = "pending/"
	LeasesPrefix   = leasePrefix
)

// QueuePrefix begins all markers of a queue, of all shards.
func QueuePrefix(q Queue) string { return DuePrefix + string(q) + "/" }

// IDsKey is the counter of the ids that a shard gives out.
func IDsKey(shard int) string { return idsKey(shard) }

// Shard is the shard whose counter made the id.
func (id StreamID) Shard() int { return int(id >> 56) }

// Counter is what the shard's counter stood at when it made the id.
func (id StreamID) Counter() uint64 { return uint64(id) & (1<<56 - 1) }

// ParseStreamKey reads a key of one of a stream's three records back; prefix says which.
func ParseStreamKey(prefix, key string) (StreamID, error) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return 0, badKey("%q is not a key under %s", key, prefix)
	}
	id, err := parseHex16(rest)
	return StreamID(id), err
}

// ParseTrimKey reads TrimKey back.
func ParseTrimKey(key string) (ChainID, error) {
	rest, ok := strings.CutPrefix(key, TrimsPrefix)
	star, epoch, cut := strings.Cut(rest, "/")
	if !ok || !cut {
		return ChainID{}, badKey("%q is not a trim key", key)
	}
	e, err := parseHex16(epoch)
	return ChainID{star, e}, err
}

// ParseBatchKey reads BatchKey back, and cares that it is in its chain's shard.
func ParseBatchKey(key string) (ChainID, uint64, error) {
	rest, ok := strings.CutPrefix(key, QueuePrefix(Denorm))
	at := strings.LastIndexByte(rest, '~')
	if !ok || len(rest) < 3 || rest[2] != '/' || at < 3 {
		return ChainID{}, 0, badKey("%q is not a batch marker", key)
	}
	c, err := ParseChainSubject(rest[3:at])
	if err != nil {
		return ChainID{}, 0, err
	}
	first, err := parseHex16(rest[at+1:])
	if err == nil && key != BatchKey(c, first) {
		err = badKey("%q is not in the shard of its chain", key)
	}
	return c, first, err
}

// PendingKey is the entry of a marker in the by-stream index.
func PendingKey(id StreamID, dueKey string) string { return pendingKey(id, dueKey) }

// ParsePendingKey reads PendingKey back.
func ParsePendingKey(key string) (id StreamID, dueKey string, err error) {
	rest, ok := strings.CutPrefix(key, PendingsPrefix)
	stream, entry, cut := strings.Cut(rest, "/")
	q, tail, c2 := strings.Cut(entry, "~")
	shard, tail, c3 := strings.Cut(tail, "~")
	if !ok || !cut || !c2 || !c3 || tail == "" || strings.Contains(entry, "/") {
		return 0, "", badKey("%q is not an entry of the by-stream index", key)
	}
	sid, err := parseHex16(stream)
	return StreamID(sid), DuePrefix + q + "/" + shard + "/" + tail, err
}

// ParseGCKey reads GCKey back.
func ParseGCKey(key string) (object string, err error) {
	rest, ok := strings.CutPrefix(key, GCPrefix)
	if !ok || !strings.Contains(rest, "!") || strings.Contains(rest, "/") {
		return "", badKey("%q is not a gc record", key)
	}
	return unfold(rest), nil
}

// CheckValueFormat refuses a value that does not begin with the format that this program
// reads. It is all that can be told of values whose readers fall back to defaults.
func CheckValueFormat(b []byte) error {
	if d := newDecoder(b); d.future != 0 {
		return d.done("value")
	} else if d.bad {
		return fmt.Errorf("%w: of no format that this program knows", ErrCorruptValue)
	}
	return nil
}
