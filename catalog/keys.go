package catalog

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/nova-store/nova/metastore"
)

// Shards is the number of shards of the due keyspace. It is frozen: written once
// as cluster/format and compared at every start.
const Shards = 64

// ErrBadName: a stream, star or member name breaks the rules.
var ErrBadName = errors.New("illegal name")

// ErrBadKey: a key is not of the form that its reader knows. Every Parse function fails with it alone.
var ErrBadKey = errors.New("malformed key")

// badKey returns an ErrBadKey that says what is wrong.
func badKey(format string, a ...any) error {
	return fmt.Errorf("%w: %w", ErrBadKey, fmt.Errorf(format, a...))
}

// StreamID names a stream for ever; names can be reused, ids cannot. The top byte
// is the shard whose counter made it.
type StreamID uint64

func (id StreamID) String() string { return hex16(uint64(id)) }

// ParseStreamID reads StreamID.String back.
func ParseStreamID(s string) (StreamID, error) {
	id, err := parseHex16(s)
	return StreamID(id), err
}

// ChainID is a chain's coordinate: one epoch of one star.
type ChainID struct {
	Star  string
	Epoch uint64
}

func (c ChainID) String() string { return c.Star + "~" + hex16(c.Epoch) }

// Shard returns the shard of a subject: the low six bits of its xxhash64.
func Shard(subject string) int { return int(xxhash.Sum64String(subject) % Shards) }

const hexDigits = "0123456789abcdef"

// hex16 renders a number at fixed width, so that bytewise order is numeric order.
func hex16(v uint64) string {
	var b [16]byte
	for i := 15; i >= 0; i-- {
		b[i] = hexDigits[v&15]
		v >>= 4
	}
	return string(b[:])
}

func hex2(v int) string { return string([]byte{hexDigits[v>>4&15], hexDigits[v&15]}) }

// split cuts s at each sep into out and returns how many parts there are; of more than fit, one too many.
func split(s string, sep byte, out []string) int {
	for n := range out {
		i := strings.IndexByte(s, sep)
		if i < 0 {
			out[n] = s
			return n + 1
		}
		out[n], s = s[:i], s[i+1:]
	}
	return len(out) + 1
}

func parseHex16(s string) (uint64, error) {
	if len(s) != 16 {
		return 0, badKey("%q is not 16 hex digits", s)
	}
	var v uint64
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			v = v<<4 | uint64(c-'0')
		case 'a' <= c && c <= 'f':
			v = v<<4 | uint64(c-'a'+10)
		default:
			return 0, badKey("%q is not 16 lower-case hex digits", s)
		}
	}
	return v, nil
}

// CheckStreamName refuses names that are not 1–200 bytes of UTF-8, that hold '!',
// '~' or a control character, or that are "." or "..", which no URL path can carry.
func CheckStreamName(name string) error {
	switch {
	case name == "" || len(name) > 200:
		return fmt.Errorf("%w: a stream name has 1 to 200 bytes, this one has %d", ErrBadName, len(name))
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: stream name %q is not UTF-8", ErrBadName, name)
	case name == "." || name == "..":
		return fmt.Errorf("%w: stream name %q is a relative path", ErrBadName, name)
	}
	for _, r := range name {
		if r == '!' || r == '~' || r < 0x20 || r >= 0x7f && r < 0xa0 {
			return fmt.Errorf("%w: stream name %q holds %q; '!', '~' and control characters are not allowed", ErrBadName, name, r)
		}
	}
	return nil
}

// CheckNodeName refuses star and member names that are not
// [A-Za-z0-9][A-Za-z0-9._-]{0,62}.
func CheckNodeName(name string) error {
	ok := name != "" && len(name) <= 63
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = alnum || i > 0 && (c == '.' || c == '_' || c == '-')
	}
	if !ok {
		return fmt.Errorf("%w: %q must be 1 to 63 letters, digits, '.', '_' and '-', and begin with a letter or digit", ErrBadName, name)
	}
	return nil
}

// Keys of the cluster.

// FormatKey holds the format version and the shard count.
const FormatKey = "cluster/format"

// RestoredKey says that the store was restored from a backup.
const RestoredKey = "cluster/restored"

// StarsPrefix, MembersPrefix, RoutesPrefix, StatsPrefix and TimingsPrefix begin the registrations, the ring
// announcements, the routes of live stars, what members say of themselves, and the timing of running nodes.
const (
	StarsPrefix   = "cluster/stars/"
	MembersPrefix = "cluster/auditors/"
	RoutesPrefix  = "cluster/routes/"
	StatsPrefix   = "cluster/stats/"
	TimingsPrefix = "cluster/timings/"
	leasePrefix   = "auditor/lease/"
)

// StarKey is the durable registration of a star.
func StarKey(star string) string { return StarsPrefix + star }

// RouteKey is the session-bound record of a live star.
func RouteKey(star string) string { return RoutesPrefix + star }

// MemberKey is a member's session-bound ring announcement.
func MemberKey(member string) string { return MembersPrefix + member }

// StatsKey is what a member says of itself, bound to the session of its announcement.
func StatsKey(member string) string { return StatsPrefix + member }

// TimingKey is what an instance of a node says of its timing, bound to a session of its own.
func TimingKey(instance string) string { return TimingsPrefix + instance }

// LeaseKey is the session-bound lease of a job.
func LeaseKey(job string) string { return leasePrefix + fold(job) }

// Keys of chains.

// ChainHeadKey holds a star's newest epoch.
func ChainHeadKey(star string) string { return "chain/" + star }

// ChainPrefix begins all chain records of a star.
func ChainPrefix(star string) string { return "chain/" + star + "/" }

// ChainKey is a chain's record.
func ChainKey(c ChainID) string { return ChainPrefix(c.Star) + hex16(c.Epoch) }

// TrimKey holds a chain's rewritten and trimmed cursors.
func TrimKey(c ChainID) string { return "trim/" + c.Star + "/" + hex16(c.Epoch) }

// ParseChainKey reads ChainKey back.
func ParseChainKey(key string) (ChainID, error) {
	var parts [3]string
	if split(key, '/', parts[:]) != len(parts) || parts[0] != "chain" {
		return ChainID{}, badKey("%q is not a chain key", key)
	}
	e, err := parseHex16(parts[2])
	return ChainID{parts[1], e}, err
}

// Keys of streams.

func idsKey(shard int) string { return "ids/" + hex2(shard) }

// NamePrefix begins the names of the streams that are not deleted.
const NamePrefix = "name/"

// NameKey leads from a stream's name to its id.
func NameKey(name string) string { return NamePrefix + name }

// StreamKey, HeadKey and MarkKey are a stream's three records.
func StreamKey(id StreamID) string { return "stream/" + hex16(uint64(id)) }

// HeadKey holds what absorb moves: next offset, bytes, producers.
func HeadKey(id StreamID) string { return "head/" + hex16(uint64(id)) }

// MarkKey holds the trim watermark and the key of the retention marker.
func MarkKey(id StreamID) string { return "mark/" + hex16(uint64(id)) }

// SpanPrefix begins a stream's catalog.
func SpanPrefix(id StreamID) string { return "span/" + hex16(uint64(id)) + "/" }

// SpanKey is keyed by the span's last offset, so that the span that covers an
// offset is the first at or above it.
func SpanKey(id StreamID, last uint64) string {
	return "span/" + hex16(uint64(id)) + "/" + hex16(last)
}

// ParseSpanKey reads SpanKey back.
func ParseSpanKey(key string) (StreamID, uint64, error) {
	rest, ok := strings.CutPrefix(key, "span/")
	if !ok || len(rest) != 33 || rest[16] != '/' {
		return 0, 0, badKey("%q is not a span key", key)
	}
	id, err := parseHex16(rest[:16])
	if err != nil {
		return 0, 0, err
	}
	last, err := parseHex16(rest[17:])
	return StreamID(id), last, err
}

// RefPrefix begins an object's refs.
func RefPrefix(object string) string { return "ref/" + fold(object) + "/" }

// RefKey says that a span of a stream names the object.
func RefKey(object string, id StreamID, last uint64) string {
	return "ref/" + fold(object) + "/" + hex16(uint64(id)) + "~" + hex16(last)
}

// ParseRefKey reads RefKey back.
func ParseRefKey(key string) (object string, id StreamID, last uint64, err error) {
	var parts [3]string
	if split(key, '/', parts[:]) != len(parts) || parts[0] != "ref" || len(parts[2]) != 33 || parts[2][16] != '~' {
		return "", 0, 0, badKey("%q is not a ref key", key)
	}
	sid, err := parseHex16(parts[2][:16])
	if err != nil {
		return "", 0, 0, err
	}
	last, err = parseHex16(parts[2][17:])
	return unfold(parts[1]), StreamID(sid), last, err
}

// GCKey leads from an object to its one standing gc marker.
func GCKey(object string) string { return "gc/" + fold(object) }

// PendingPrefix begins a stream's index of pending work.
func PendingPrefix(id StreamID) string { return "pending/" + hex16(uint64(id)) + "/" }

// Objects.

const (
	slotPrefix    = "slot/"
	bundlePrefix  = "bundle/"
	settledPrefix = "settled/"
)

// SlotKey is the object of a chain's slot.
func SlotKey(c ChainID, slot uint64) string {
	return slotPrefix + c.Star + "/" + hex16(c.Epoch) + "/" + hex16(slot)
}

// BundleKey is the object that holds the records of a bundled slot. The flight's id makes it
// of one flight alone, whoever else tried that slot.
func BundleKey(c ChainID, slot uint64, flight [16]byte) string {
	return bundlePrefix + c.Star + "/" + hex16(c.Epoch) + "/" + hex16(slot) + "-" + hex.EncodeToString(flight[:])
}

// StarPrefixes begin all objects of a star's chains: its slots and its bundles.
func StarPrefixes(star string) []string {
	return []string{slotPrefix + star + "/", bundlePrefix + star + "/"}
}

// IsBundle tells whether an object is a bundle, watched like a settled object.
func IsBundle(object string) bool { return strings.HasPrefix(object, bundlePrefix) }

// ParseBundleKey reads BundleKey back.
func ParseBundleKey(object string) (c ChainID, slot uint64, flight [16]byte, err error) {
	bad := func(err error) (ChainID, uint64, [16]byte, error) {
		return ChainID{}, 0, [16]byte{}, badKey("%q is not a bundle: %w", object, err)
	}
	var parts [4]string
	if split(object, '/', parts[:]) != len(parts) || parts[0] != "bundle" {
		return bad(errors.New("not bundle/star/epoch/slot-flight"))
	}
	c.Star = parts[1]
	at, id, _ := strings.Cut(parts[3], "-")
	var e1, e2, e3 error
	c.Epoch, e1 = parseHex16(parts[2])
	slot, e2 = parseHex16(at)
	if len(id) != 2*len(flight) || strings.ToLower(id) != id {
		e3 = fmt.Errorf("%q is not a flight's id", id)
	} else if _, e3 = hex.Decode(flight[:], []byte(id)); e3 != nil {
		e3 = fmt.Errorf("%q is not a flight's id: %w", id, e3)
	}
	if err := errors.Join(CheckNodeName(c.Star), e1, e2, e3); err != nil {
		return bad(err)
	}
	return c, slot, flight, nil
}

// SettledKey is a settled object of the given ULID.
func SettledKey(ulid string) string { return settledPrefix + ulid }

// IsSlot tells whether an object is a slot, watched by its chain and not by refs.
func IsSlot(object string) bool { return strings.HasPrefix(object, slotPrefix) }

// ParseSlotKey reads SlotKey back.
func ParseSlotKey(object string) (ChainID, uint64, error) {
	var parts [4]string
	if split(object, '/', parts[:]) != len(parts) || parts[0] != "slot" {
		return ChainID{}, 0, badKey("%q is not a slot", object)
	}
	e, err := parseHex16(parts[2])
	if err != nil {
		return ChainID{}, 0, err
	}
	s, err := parseHex16(parts[3])
	return ChainID{parts[1], e}, s, err
}

// fold makes an object key fit into one segment of a key.
func fold(object string) string    { return strings.ReplaceAll(object, "/", "!") }
func unfold(segment string) string { return strings.ReplaceAll(segment, "!", "/") }

// Queues.

// Queue names a due queue.
type Queue string

// The eight queues, frozen like the shards.
const (
	Teardown  Queue = "teardown"
	Settle    Queue = "settle"
	Retention Queue = "retention"
	Reap      Queue = "reap"
	TrimCheck Queue = "trimcheck"
	Denorm    Queue = "denorm"
	Orphan    Queue = "orphan"
	GC        Queue = "gc"
)

// Queues returns all queues in the order of their priority.
func Queues() []Queue {
	return []Queue{Teardown, Settle, Retention, Reap, TrimCheck, Denorm, Orphan, GC}
}

// TimeOrdered tells whether a queue's order is the ready time.
func (q Queue) TimeOrdered() bool {
	switch q {
	case Teardown, Settle, Retention, Reap, TrimCheck:
		return true
	}
	return false
}

// ShardRange is what discovery walks of a queue's shard: the markers, or, of
// denorm, its schedule.
func ShardRange(q Queue, shard int) metastore.Range {
	if q == Denorm {
		return metastore.Prefix("schedule/denorm/" + hex2(shard) + "/")
	}
	return metastore.Prefix(duePrefix(q, shard))
}

// ShardRanges are the ShardRange of all shards of a queue. They share their memory: whoever walks all shards of all queues
// may hold hundreds of them.
func ShardRanges(q Queue) []metastore.Range {
	first := ShardRange(q, 0)
	n := len(first.Start)
	head := first.Start[:n-len("00/")]
	all := make([]byte, 0, 2*n*Shards)
	for shard := range Shards {
		for _, last := range []byte{'/', '/' + 1} {
			all = append(append(append(all, head...), hexDigits[shard>>4], hexDigits[shard&15]), last)
		}
	}
	text, out := string(all), make([]metastore.Range, Shards)
	for i := range out {
		out[i] = metastore.Range{Start: text[2*i*n : (2*i+1)*n], End: text[(2*i+1)*n : (2*i+2)*n]}
	}
	return out
}

// ShardFrom is where the markers of an order begin in what discovery walks of a
// shard: of a queue ordered by time, or of denorm's schedule, a ready time in Unix ms.
func ShardFrom(q Queue, shard int, order uint64) string {
	return ShardRange(q, shard).Start + hex16(order)
}

func duePrefix(q Queue, shard int) string { return "due/" + string(q) + "/" + hex2(shard) + "/" }

// DueKey is the key of a marker. Denorm's order is the chain coordinate and has
// BatchKey; orphan has IntentKey; both have no order of their own.
func DueKey(q Queue, order uint64, subject string) string {
	return "due/" + string(q) + "/" + hex2(Shard(subject)) + "/" + hex16(order) + "~" + subject
}

// IntentKey announces an object before its PUT.
func IntentKey(object string) string {
	f := fold(object)
	return duePrefix(Orphan, Shard(f)) + f
}

// BatchKey is the marker of the batch of slots that begins at first.
func BatchKey(c ChainID, first uint64) string {
	id := c.String()
	return "due/denorm/" + hex2(Shard(id)) + "/" + id + "~" + hex16(first)
}

// BatchPrefix begins all batch markers of a chain.
func BatchPrefix(c ChainID) string {
	id := c.String()
	return "due/denorm/" + hex2(Shard(id)) + "/" + id + "~"
}

// ScheduleKey is the ready-time index entry of a batch marker.
func ScheduleKey(c ChainID, first uint64, readyMS int64) string {
	id := c.String()
	return "schedule/denorm/" + hex2(Shard(id)) + "/" + hex16(uint64(readyMS)) + "~" + id + "~" + hex16(first)
}

func pendingKey(id StreamID, dueKey string) string {
	rest := strings.TrimPrefix(dueKey, "due/")
	q, rest, _ := strings.Cut(rest, "/")
	shard, tail, _ := strings.Cut(rest, "/")
	return PendingPrefix(id) + q + "~" + shard + "~" + tail
}

// Due is a parsed marker key, or a parsed entry of denorm's schedule.
type Due struct {
	Queue   Queue
	Shard   int
	Key     string // as read
	Order   uint64 // ready time in Unix ms, or gc's reclaim order; 0 for orphan
	Subject string // stream id, folded object key, chain, or star
	// Of the schedule alone:
	Chain ChainID
	First uint64
}

// Object is the subject of a reap, gc or orphan marker, unfolded.
func (d Due) Object() string { return unfold(d.Subject) }

// PastDue tells how far past its ready time the marker is; 0 where its order is no time.
func (d Due) PastDue(now time.Time) time.Duration {
	if !d.Queue.TimeOrdered() && d.Queue != Denorm {
		return 0
	}
	return now.Sub(d.ReadyAt())
}

// ReadyAt is the ready time of a marker whose order is one.
func (d Due) ReadyAt() time.Time { return time.UnixMilli(int64(d.Order)) }

// PrimaryKey is the marker that the entry stands for.
func (d Due) PrimaryKey() string {
	if d.Queue == Denorm {
		return BatchKey(d.Chain, d.First)
	}
	return d.Key
}

// ParseDue reads a key of ShardRange. A key that does not parse can never be
// worked on by anyone: the caller discards it.
func ParseDue(key string) (Due, error) {
	var parts [4]string
	bad := func(why string) (Due, error) {
		return Due{}, badKey("due key %q: %s", key, why)
	}
	if split(key, '/', parts[:]) != len(parts) {
		return bad("not four segments")
	}
	shard, err := strconv.ParseUint(parts[2], 16, 8)
	if err != nil || shard >= Shards || parts[2] != hex2(int(shard)) {
		return bad("bad shard")
	}
	d := Due{Queue: Queue(parts[1]), Shard: int(shard), Key: key}
	if parts[0] == "schedule" && d.Queue == Denorm {
		var f [4]string
		if split(parts[3], '~', f[:]) != len(f) {
			return bad("not ready~star~epoch~slot")
		}
		var e1, e2, e3 error
		d.Order, e1 = parseHex16(f[0])
		d.Chain.Star = f[1]
		d.Chain.Epoch, e2 = parseHex16(f[2])
		d.First, e3 = parseHex16(f[3])
		if err := errors.Join(e1, e2, e3, CheckNodeName(f[1])); err != nil {
			return bad(err.Error())
		}
		d.Subject = parts[3][len(f[0])+1 : len(parts[3])-len(f[3])-1] // the chain, as it is written
		return d, nil
	}
	if parts[0] != "due" {
		return bad("not a due key")
	}
	switch d.Queue {
	case Orphan:
		d.Subject = parts[3]
		if !strings.Contains(d.Subject, "!") {
			return bad("not an object")
		}
		return d, nil
	case Teardown, Settle, Retention, Reap, TrimCheck, GC:
	default:
		return bad("no such queue")
	}
	if len(parts[3]) < 18 || parts[3][16] != '~' {
		return bad("not order~subject")
	}
	if d.Order, err = parseHex16(parts[3][:16]); err != nil {
		return bad(err.Error())
	}
	d.Subject = parts[3][17:]
	switch d.Queue {
	case Teardown, Retention:
		_, err = parseHex16(d.Subject)
	case TrimCheck:
		_, err = ParseChainSubject(d.Subject)
	case Settle:
		if _, err = ParseChainSubject(d.Subject); err != nil {
			err = CheckNodeName(d.Subject)
		}
	case Reap, GC:
		if !strings.Contains(d.Subject, "!") {
			err = errors.New("not an object")
		}
	}
	if err != nil {
		return bad(err.Error())
	}
	return d, nil
}

// ParseChainSubject reads ChainID.String back.
func ParseChainSubject(s string) (ChainID, error) {
	star, e, ok := strings.Cut(s, "~")
	if !ok {
		return ChainID{}, badKey("%q is not star~epoch", s)
	}
	if err := CheckNodeName(star); err != nil {
		return ChainID{}, badKey("%q: %w", s, err)
	}
	epoch, err := parseHex16(e)
	return ChainID{star, epoch}, err
}
