package star

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

const (
	// bigSpan is the stored length from which a span is read in pieces, found by its
	// object's footer.
	bigSpan = 512 << 10
	// pieceBytes is how long a piece of a big span is, or one block, if that is longer.
	pieceBytes = 4 << 20
	// aheadBytes bounds the stored bytes that one read holds at once, the last
	// piece not counted.
	aheadBytes = 16 << 20
	// piecesMost bounds the ranges fetched ahead, parallelGets those at once.
	piecesMost   = 16
	parallelGets = 4
)

// piece is a block-aligned range of an object, and the records wanted of it.
type piece struct {
	object      string
	off, length int64
	ordinal     uint32 // of the first record wanted, in the section
	end         uint32 // first ordinal not wanted
	body        []byte
	err         error
}

// plan chooses the ranges to fetch for the next records, until they hold about as much as
// the limits allow, in stored bytes; what they hold beyond that is dropped.
func (r *reader) plan(ctx context.Context, spans []catalog.SpanAt) ([]piece, error) {
	var pieces []piece
	at, records := r.next, uint64(r.records)
	budget := min(max(r.bytes, 64<<10), aheadBytes)
	for i := range spans {
		span := &spans[i].Span
		if span.First > at || at >= r.end || records == 0 || budget <= 0 || len(pieces) >= piecesMost {
			break
		}
		ordinal := span.Ordinal + uint32(at-span.First)
		count := min(min(span.Last()+1, r.end)-at, records)
		end := ordinal + uint32(count)
		if span.Length <= bigSpan {
			pieces = append(pieces, piece{object: span.Object, off: span.Offset, length: span.Length, ordinal: ordinal, end: end})
			budget -= span.Length
		} else {
			blocks, err := r.s.blocks(ctx, r.stream, span)
			if err != nil {
				if i > 0 {
					break // the next seek begins with it
				}
				return nil, err
			}
			for ordinal < end && budget > 0 && len(pieces) < piecesMost {
				p := cut(blocks, ordinal, end, min(pieceBytes, budget))
				p.object = span.Object
				pieces = append(pieces, p)
				budget -= p.length
				ordinal = p.end
			}
			if ordinal < end {
				break
			}
		}
		at += count
		records -= count
	}
	return pieces, nil
}

// cut returns the piece that begins with the block of ordinal, and has as many blocks as
// bytes allow. The blocks reach up to end.
func cut(blocks []format.Block, ordinal, end uint32, bytes int64) piece {
	i := sort.Search(len(blocks), func(i int) bool { return blocks[i].Ordinal > ordinal }) - 1
	p := piece{off: blocks[i].Offset, ordinal: ordinal}
	for ; i < len(blocks) && p.end < end && (p.length == 0 || p.length+blocks[i].Length <= bytes); i++ {
		p.length += blocks[i].Length
		p.end = min(blocks[i].Ordinal+blocks[i].Records, end)
	}
	return p
}

// fetch reads the pieces, a few at once. It waits for each that it has begun, so that none outlives the read: they end soon
// where ctx does.
func (r *reader) fetch(ctx context.Context, pieces []piece) error {
	if len(pieces) == 1 {
		p := &pieces[0]
		p.body, p.err = r.s.get(ctx, p.object, p.off, p.length)
		return nil
	}
	g := clock.NewGroup(r.s.clk, parallelGets)
	var err error
	for i := range pieces {
		p := &pieces[i]
		err = g.Go(ctx, "star.get", func(ctx context.Context) error {
			p.body, p.err = r.s.get(ctx, p.object, p.off, p.length)
			return nil
		})
		if err != nil {
			break
		}
	}
	// Each piece keeps its own error: those before a failed one still count.
	_ = g.Wait(context.WithoutCancel(ctx))
	return err
}

// missingError names the object that was not found.
type missingError struct {
	object string
	err    error
}

func (e *missingError) Error() string { return e.object + ": " + e.err.Error() }
func (e *missingError) Unwrap() error { return e.err }

const (
	getTries = 4
	getRetry = 20 * time.Millisecond
)

// get reads a range, a few times where the bucket is busy.
func (s *Star) get(ctx context.Context, object string, off, n int64) ([]byte, error) {
	for try := 1; ; try++ {
		body, err := s.bucket.Get(ctx, object, off, n)
		switch {
		case err == nil:
			return body, nil
		case errors.Is(err, objstore.ErrNotFound):
			return nil, &missingError{object, err}
		case !retryable(err) || try == getTries:
			return nil, fmt.Errorf("reading %d bytes of %s: %w", n, object, err)
		}
		if err := s.clk.Sleep(ctx, clock.Jitter(s.clk, getRetry<<try)); err != nil {
			return nil, err
		}
	}
}

// errStop ends the walk over a piece's records.
var errStop = errors.New("stop")

// decode takes the piece's records. A piece that is corrupt is read once more: the
// damage may have been done on the way.
func (r *reader) decode(ctx context.Context, d *format.Decoder, p *piece) error {
	if p.err != nil {
		return p.err
	}
	err := r.decodeOnce(d, p)
	if err == nil || !errors.Is(err, format.ErrCorrupt) {
		return format.InObject(err, p.object, p.off)
	}
	r.s.events.Branch("star.read.corrupt")
	if p.body, err = r.s.get(ctx, p.object, p.off, p.length); err != nil {
		return err
	}
	if err = r.decodeOnce(d, p); err != nil {
		err = format.InObject(err, p.object, p.off)
		r.s.log.Error("corrupt object", "object", p.object, "stream", r.stream.String(), "offset", r.next, "error", err)
	}
	return err
}

// decodeOnce takes the piece's records from the next offset on: each is verified before it is taken,
// and none may be missing.
func (r *reader) decodeOnce(d *format.Decoder, p *piece) error {
	err := d.Records(p.body, uint64(r.stream), func(ordinal uint32, rec Record) error {
		switch {
		case ordinal < p.ordinal:
			return nil
		case ordinal >= p.end:
			return errStop
		case ordinal > p.ordinal:
			return &format.CorruptError{Reason: fmt.Sprintf("record %d of the section is not in its blocks", p.ordinal)}
		case !r.take(rec):
			return errStop
		}
		p.ordinal++
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, errStop):
		return err
	case p.ordinal < p.end && !r.full:
		return &format.CorruptError{Offset: int64(len(p.body)), Reason: fmt.Sprintf("record %d of the section is not in its blocks", p.ordinal)}
	}
	return nil
}

// blocks returns the blocks of the section that holds a span, from its object's
// footer, and cares that they hold all of it.
func (s *Star) blocks(ctx context.Context, stream catalog.StreamID, span *catalog.Span) ([]format.Block, error) {
	key := sectionKey{span.Object, stream, span.Offset}
	if blocks := s.sections.get(key); blocks != nil {
		return blocks, nil
	}
	_, footer, err := s.readFooter(ctx, span.Object)
	for try := 1; err != nil && retryable(err) && try < getTries; try++ {
		if err := s.clk.Sleep(ctx, clock.Jitter(s.clk, getRetry<<try)); err != nil {
			return nil, err
		}
		_, footer, err = s.readFooter(ctx, span.Object)
	}
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return nil, &missingError{span.Object, err}
	case err != nil:
		return nil, err
	}
	for i := range footer.Sections {
		sec := &footer.Sections[i]
		if sec.Stream != uint64(stream) || span.Offset < sec.Offset || span.Offset >= sec.Offset+sec.Length {
			continue
		}
		if uint64(span.Ordinal)+span.Count > uint64(sec.Records) {
			break
		}
		blocks := slices.Clone(sec.Blocks)
		s.sections.put(key, blocks)
		return blocks, nil
	}
	return nil, &format.CorruptError{Object: span.Object, Offset: span.Offset,
		Reason: fmt.Sprintf("its footer does not have the span of offsets %d to %d of stream %v", span.First, span.Last(), stream)}
}

// sectionCache keeps the block indexes of big spans that were read last.
type sectionCache struct {
	mu     sync.Mutex
	blocks map[sectionKey][]format.Block
	order  fifo[sectionKey]
	count  int
}

type sectionKey struct {
	object string
	stream catalog.StreamID
	offset int64
}

// cachedBlocksMost bounds the cache: about 4 MiB.
const cachedBlocksMost = 128 << 10

func (c *sectionCache) init() { c.blocks = make(map[sectionKey][]format.Block) }

func (c *sectionCache) get(k sectionKey) []format.Block {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blocks[k]
}

func (c *sectionCache) put(k sectionKey, blocks []format.Block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.blocks[k]; ok {
		return
	}
	c.blocks[k] = blocks
	c.order.push(k)
	c.count += len(blocks)
	for c.count > cachedBlocksMost {
		old := c.order.pop()
		c.count -= len(c.blocks[old])
		delete(c.blocks, old)
	}
}

// decoders lends decoders, whose buffers and codecs are costly to make.
type decoders struct {
	mu   sync.Mutex
	free []*format.Decoder
}

// decodersKept bounds those that wait for their next use.
const decodersKept = 16

func (p *decoders) get() *format.Decoder {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free)
	if n == 0 {
		return format.NewDecoder()
	}
	d := p.free[n-1]
	p.free = p.free[:n-1]
	return d
}

func (p *decoders) put(d *format.Decoder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < decodersKept {
		p.free = append(p.free, d)
	}
}
