package catalog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrCorruptValue: a metadata value does not decode, or is of a future format.
var ErrCorruptValue = errors.New("unreadable metadata value")

// ErrFutureFormat: the keyspace, or one of its values, was written by a later version of Nova, which alone can read
// it. Of a value it is an ErrCorruptValue, too: nobody here can tell what it says.
var ErrFutureFormat = errors.New("written by a later version of Nova: upgrade novad")

// valueFormat is the leading byte of every value.
const valueFormat = 1

type encoder struct{ b []byte }

func newEncoder(capacity int) *encoder {
	return &encoder{b: append(make([]byte, 0, capacity+1), valueFormat)}
}

func (e *encoder) uint(v uint64) { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)   { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) bool(v bool) {
	if v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}
func (e *encoder) string(s string) {
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
}

// decoder has a sticky error; every count it returns is bounded by what is left.
type decoder struct {
	b      []byte
	bad    bool
	future byte // format of a later version, which is why it is bad
}

func newDecoder(b []byte) *decoder {
	if len(b) == 0 || b[0] != valueFormat {
		d := &decoder{bad: true}
		if len(b) > 0 && b[0] > valueFormat {
			d.future = b[0]
		}
		return d
	}
	return &decoder{b: b[1:]}
}

// newDecoderOf is newDecoder for a value that has a second form, by the leading byte other, and tells whether b is of that form.
func newDecoderOf(b []byte, other byte) (d *decoder, second bool) {
	if len(b) > 0 && b[0] == other {
		return &decoder{b: b[1:]}, true
	}
	return newDecoder(b), false
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// upTo reads a number that is at most most: a state of a later version, or a number
// that does not fit what it is read into, is refused rather than cut.
func (d *decoder) upTo(most uint64) uint64 {
	v := d.uint()
	if v > most {
		d.bad, d.b = true, nil
		return 0
	}
	return v
}

func (d *decoder) uint32() uint32 { return uint32(d.upTo(math.MaxUint32)) }

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// since reads a number that values did not have at first: 0 where it is missing.
func (d *decoder) since() uint64 {
	if d.bad || len(d.b) == 0 {
		return 0
	}
	return d.uint()
}

func (d *decoder) bool() bool { return d.uint() != 0 }

func (d *decoder) string() string {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

// count reads the length of a list whose elements take a byte each at least.
func (d *decoder) count() int {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return 0
	}
	return int(n)
}

func (d *decoder) done(what string) error {
	if d.future != 0 {
		return fmt.Errorf("%w: %s of format %d: %w", ErrCorruptValue, what, d.future, ErrFutureFormat)
	}
	if d.bad || len(d.b) != 0 {
		return fmt.Errorf("%w: %s", ErrCorruptValue, what)
	}
	return nil
}
