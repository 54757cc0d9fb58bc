package catalog

// Values of the cluster, chains and streams. Times are Unix milliseconds.

// Format is the value of cluster/format.
type Format struct {
	Version uint64
	Shards  uint64
}

// FormatVersion is the keyspace version that this program reads and writes.
const FormatVersion = 1

func (v Format) encode() []byte {
	e := newEncoder(8)
	e.uint(v.Version)
	e.uint(v.Shards)
	return e.b
}

// DecodeFormat reads a Format.
func DecodeFormat(b []byte) (Format, error) {
	d := newDecoder(b)
	v := Format{Version: d.uint(), Shards: d.uint()}
	return v, d.done("format")
}

// Star is a star's durable registration.
type Star struct {
	Retired bool
	Created int64
	Swept   bool // and nothing of it is left in the bucket; only a retired one's
}

func (v Star) encode() []byte {
	state := starActive
	switch {
	case v.Swept:
		state = starSwept
	case v.Retired:
		state = starRetired
	}
	e := newEncoder(12)
	e.uint(state)
	e.int(v.Created)
	return e.b
}

// States of a registration. The first two were all there was before there were sweeps.
const (
	starActive uint64 = iota
	starRetired
	starSwept // and retired
)

// DecodeStar reads a Star.
func DecodeStar(b []byte) (Star, error) {
	d := newDecoder(b)
	state := d.upTo(starSwept)
	v := Star{Retired: state >= starRetired, Swept: state == starSwept, Created: d.int()}
	return v, d.done("star")
}

// Route is the liveness of a chain: the address of the star and its epoch.
type Route struct {
	Address string
	Epoch   uint64
}

func (v Route) encode() []byte {
	e := newEncoder(32)
	e.string(v.Address)
	e.uint(v.Epoch)
	return e.b
}

// DecodeRoute reads a Route.
func DecodeRoute(b []byte) (Route, error) {
	d := newDecoder(b)
	v := Route{Address: d.string(), Epoch: d.uint()}
	return v, d.done("route")
}

// ChainHead is a star's newest epoch, the incarnation that minted it, and the
// nonce of that one mint.
type ChainHead struct {
	Epoch       uint64
	Incarnation uint64
	Nonce       uint64
}

func (v ChainHead) encode() []byte {
	e := newEncoder(30)
	e.uint(v.Epoch)
	e.uint(v.Incarnation)
	e.uint(v.Nonce)
	return e.b
}

// DecodeChainHead reads a ChainHead.
func DecodeChainHead(b []byte) (ChainHead, error) {
	d := newDecoder(b)
	v := ChainHead{Epoch: d.uint(), Incarnation: d.uint(), Nonce: d.uint()}
	return v, d.done("chain head")
}

// ChainState is where a chain stands in its life.
type ChainState uint8

// A chain is open while its star may absorb; fencing once the settle duty took it
// over; sealed once nothing can be committed to it any more.
const (
	ChainOpen ChainState = iota
	ChainFencing
	ChainSealed
)

func (s ChainState) String() string {
	switch s {
	case ChainOpen:
		return "open"
	case ChainFencing:
		return "fencing"
	case ChainSealed:
		return "sealed"
	}
	return "unknown"
}

// Chain is a chain's record.
type Chain struct {
	State         ChainState
	Window        uint64 // W: slots being PUT are below the first not known durable + W
	Checkpoint    uint64 // first slot not absorbed
	AbsorbedBytes uint64
	Nonce         uint64 // of the last absorb
	SettleNonce   uint64 // of the settle run, from fencing on
	Seal          uint64 // slot of the seal, once sealed
	WindowEnd     uint64 // first slot past all that seals have been put, or announced, for
	SealedAt      int64
}

func (v Chain) encode() []byte {
	e := newEncoder(64)
	e.uint(uint64(v.State))
	e.uint(v.Window)
	e.uint(v.Checkpoint)
	e.uint(v.AbsorbedBytes)
	e.uint(v.Nonce)
	e.uint(v.SettleNonce)
	e.uint(v.Seal)
	e.uint(v.WindowEnd)
	e.int(v.SealedAt)
	return e.b
}

// DecodeChain reads a Chain.
func DecodeChain(b []byte) (Chain, error) {
	d := newDecoder(b)
	v := Chain{State: ChainState(d.upTo(uint64(ChainSealed))), Window: d.uint(), Checkpoint: d.uint(), AbsorbedBytes: d.uint(),
		Nonce: d.uint(), SettleNonce: d.uint(), Seal: d.uint(), WindowEnd: d.uint(), SealedAt: d.int()}
	return v, d.done("chain")
}

// Trim is the auditor's half of a chain: absorb never writes it, so that the two
// do not conflict.
type Trim struct {
	Rewritten    uint64 // every slot below completed its rewrite
	Trimmed      uint64 // every slot below is deleted
	SettledBytes uint64
	SettleKey    string // the chain's one standing settle marker
}

func (v Trim) encode() []byte {
	e := newEncoder(32 + len(v.SettleKey))
	e.uint(v.Rewritten)
	e.uint(v.Trimmed)
	e.uint(v.SettledBytes)
	e.string(v.SettleKey)
	return e.b
}

// DecodeTrim reads a Trim.
func DecodeTrim(b []byte) (Trim, error) {
	d := newDecoder(b)
	v := Trim{Rewritten: d.uint(), Trimmed: d.uint(), SettledBytes: d.uint(), SettleKey: d.string()}
	return v, d.done("trim")
}

func encodeID(id StreamID) []byte {
	e := newEncoder(10)
	e.uint(uint64(id))
	return e.b
}

// DecodeID reads the value of a name, or of an id counter.
func DecodeID(b []byte) (StreamID, error) {
	d := newDecoder(b)
	id := StreamID(d.uint())
	return id, d.done("stream id")
}

// StreamState is where a stream stands in its life.
type StreamState uint8

// A deleted stream is invisible; a tearing one is being killed span by span.
const (
	StreamActive StreamState = iota
	StreamDeleted
	StreamTearing
)

func (s StreamState) String() string {
	switch s {
	case StreamActive:
		return "active"
	case StreamDeleted:
		return "deleted"
	case StreamTearing:
		return "tearing"
	}
	return "unknown"
}

// Policy is a stream's retention; zero fields mean no bound.
type Policy struct {
	MaxAgeMS int64
	MaxBytes uint64
}

// Stream is a stream's identity.
type Stream struct {
	Name    string
	State   StreamState
	Created int64
	Deleted int64
	Nonce   uint64 // of the create
	Policy  Policy
}

func (v Stream) encode() []byte {
	e := newEncoder(48 + len(v.Name))
	e.string(v.Name)
	e.uint(uint64(v.State))
	e.int(v.Created)
	e.int(v.Deleted)
	e.uint(v.Nonce)
	e.int(v.Policy.MaxAgeMS)
	e.uint(v.Policy.MaxBytes)
	return e.b
}

// DecodeStream reads a Stream.
func DecodeStream(b []byte) (Stream, error) {
	d := newDecoder(b)
	v := Stream{Name: d.string(), State: StreamState(d.upTo(uint64(StreamTearing))), Created: d.int(), Deleted: d.int(), Nonce: d.uint(),
		Policy: Policy{MaxAgeMS: d.int(), MaxBytes: d.uint()}}
	return v, d.done("stream")
}

// ChainLast is the last slot of a chain that holds records of a stream.
type ChainLast struct {
	Chain ChainID
	Slot  uint64
}

// ProducerState is what a head remembers of an idempotent producer.
type ProducerState struct {
	ID          string
	Epoch       uint32
	Seq         uint64
	First, Last uint64 // offsets of its last append
}

// MaxProducers is how many producers a head remembers.
const MaxProducers = 64

// Head is what absorb moves.
type Head struct {
	Next         uint64 // next offset
	Bytes        uint64 // payload bytes appended, ever
	MaxTimestamp int64
	Chains       []ChainLast
	Producers    []ProducerState // least recently used first
	EvictedUpTo  uint64          // 1 + the largest last offset of any producer evicted; 0: none was
}

func (v *Head) encode() []byte {
	e := newEncoder(32 + 40*len(v.Chains) + 48*len(v.Producers))
	e.uint(v.Next)
	e.uint(v.Bytes)
	e.int(v.MaxTimestamp)
	e.uint(v.EvictedUpTo)
	e.uint(uint64(len(v.Chains)))
	for _, c := range v.Chains {
		e.string(c.Chain.Star)
		e.uint(c.Chain.Epoch)
		e.uint(c.Slot)
	}
	e.uint(uint64(len(v.Producers)))
	for _, p := range v.Producers {
		e.string(p.ID)
		e.uint(uint64(p.Epoch))
		e.uint(p.Seq)
		e.uint(p.First)
		e.uint(p.Last)
	}
	return e.b
}

// DecodeHead reads a Head.
func DecodeHead(b []byte) (Head, error) {
	d := newDecoder(b)
	v := Head{Next: d.uint(), Bytes: d.uint(), MaxTimestamp: d.int(), EvictedUpTo: d.uint()}
	for n := d.count(); n > 0 && !d.bad; n-- {
		v.Chains = append(v.Chains, ChainLast{ChainID{d.string(), d.uint()}, d.uint()})
	}
	for n := d.count(); n > 0 && !d.bad; n-- {
		v.Producers = append(v.Producers, ProducerState{ID: d.string(), Epoch: d.uint32(), Seq: d.uint(), First: d.uint(), Last: d.uint()})
	}
	return v, d.done("head")
}

// Mark is a stream's trim watermark, the key of its one retention marker, and what
// retention has to remember between its runs.
type Mark struct {
	Watermark      uint64 // first readable offset, but for what the policy has expired since
	WatermarkBytes uint64 // the stream's byte position there, or at the start of the span that holds it
	RetentionKey   string // empty: none stands

	// NextBytes is how far head.Bytes must come before a whole span is expired by size; 0: not known.
	NextBytes uint64
	// ExpiredAt and BytesBelow are what policies that were replaced had expired by then, for
	// ever; as in Expiry.
	ExpiredAt  int64
	BytesBelow uint64
}

// markFormat is the leading byte of a mark whose last three fields are not all 0; the others are as they were
// in the first version.
const markFormat = 2

func (v Mark) encode() []byte {
	e := newEncoder(40 + len(v.RetentionKey))
	e.uint(v.Watermark)
	e.uint(v.WatermarkBytes)
	e.string(v.RetentionKey)
	if v.NextBytes != 0 || v.ExpiredAt != 0 || v.BytesBelow != 0 {
		e.b[0] = markFormat
		e.uint(v.NextBytes)
		e.int(v.ExpiredAt)
		e.uint(v.BytesBelow)
	}
	return e.b
}

// DecodeMark reads a Mark.
func DecodeMark(b []byte) (Mark, error) {
	d, long := newDecoderOf(b, markFormat)
	v := Mark{Watermark: d.uint(), WatermarkBytes: d.uint(), RetentionKey: d.string()}
	if long {
		v.NextBytes, v.ExpiredAt, v.BytesBelow = d.uint(), d.int(), d.uint()
	}
	return v, d.done("mark")
}

// Span says where a run of a stream's records lies. Its last offset is in its key.
type Span struct {
	First          uint64
	Object         string
	Offset, Length int64  // block-aligned byte range in the object
	Ordinal        uint32 // of First, in the stream's section of the object
	Count          uint64
	FirstTimestamp int64  // running: the largest of the stream up to its first record
	MaxTimestamp   int64  // running: the largest of the stream up to its last record
	Bytes          uint64 // payload of its records
	BytePos        uint64 // the stream's byte position at the span's end
}

// Last is the span's last offset.
func (v Span) Last() uint64 { return v.First + v.Count - 1 }

// Encode renders the span's value.
func (v Span) Encode() []byte {
	e := newEncoder(48 + len(v.Object))
	e.uint(v.First)
	e.string(v.Object)
	e.uint(uint64(v.Offset))
	e.uint(uint64(v.Length))
	e.uint(uint64(v.Ordinal))
	e.uint(v.Count)
	e.int(v.FirstTimestamp)
	e.int(v.MaxTimestamp)
	e.uint(v.Bytes)
	e.uint(v.BytePos)
	return e.b
}

// DecodeSpan reads a Span.
func DecodeSpan(b []byte) (Span, error) {
	d := newDecoder(b)
	v := Span{First: d.uint(), Object: d.string(), Offset: int64(d.uint()), Length: int64(d.uint()), Ordinal: d.uint32(),
		Count: d.uint(), FirstTimestamp: d.int(), MaxTimestamp: d.int(), Bytes: d.uint(), BytePos: d.uint()}
	if v.Count == 0 || v.Last() < v.First || v.Offset < 0 || v.Length <= 0 {
		d.bad = true
	}
	return v, d.done("span")
}

// Ref says how many of an object's bytes a span holds.
type Ref struct {
	Bytes      uint64
	ObjectSize uint64
}

func (v Ref) encode() []byte {
	e := newEncoder(20)
	e.uint(v.Bytes)
	e.uint(v.ObjectSize)
	return e.b
}

// DecodeRef reads a Ref.
func DecodeRef(b []byte) (Ref, error) {
	d := newDecoder(b)
	v := Ref{Bytes: d.uint(), ObjectSize: d.uint()}
	return v, d.done("ref")
}
