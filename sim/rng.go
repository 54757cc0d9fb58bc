package sim

import (
	"encoding/binary"
	"math/bits"
	"time"
)

// Rand is one stream of random numbers (splitmix64). A world has a stream for
// each concern, so that drawing more for one of them, or switching it off, does
// not shift the others. It implements math/rand/v2's Source.
type Rand struct {
	s uint64
	// tape has what is decided written down, or says what it is; nil: neither.
	tape *tape
}

// NewRand returns the stream of that label under that seed. Streams of different
// labels have nothing to do with each other.
func NewRand(seed uint64, label string) *Rand {
	r := newRand(seed, label)
	return &r
}

func newRand(seed uint64, label string) Rand {
	return Rand{s: mix(mix(seed+golden) ^ hashString(label))}
}

const golden = 0x9e3779b97f4a7c15

func mix(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// bits64 returns 64 random bits of the stream itself, whatever the tape says.
func (r *Rand) bits64() uint64 {
	r.s += golden
	return mix(r.s)
}

// Uint64 returns 64 random bits.
func (r *Rand) Uint64() uint64 {
	v := r.bits64()
	if r.tape != nil {
		v = r.tape.decide(v, 0)
	}
	return v
}

// N returns a number in [0, n); n must be above 0.
func (r *Rand) N(n int) int {
	hi, _ := bits.Mul64(r.bits64(), uint64(n))
	if r.tape != nil {
		hi = r.tape.decide(hi, uint64(n))
	}
	return int(hi)
}

// Chance returns true with probability p. It draws nothing where the answer is
// certain.
func (r *Rand) Chance(p float64) bool {
	if p <= 0 {
		return false
	}
	if p >= 1 {
		return true
	}
	// p times a power of two is exact, hence equal on every machine.
	yes := r.bits64()>>11 < uint64(p*(1<<53))
	if r.tape != nil {
		return r.tape.decide(oneIf(yes), 2) == 1
	}
	return yes
}

// Float64 returns a number of [0, 1).
func (r *Rand) Float64() float64 {
	v := r.bits64() >> 11
	if r.tape != nil {
		v = r.tape.decide(v, 1<<53)
	}
	return float64(v) / (1 << 53)
}

func oneIf(yes bool) uint64 {
	if yes {
		return 1
	}
	return 0
}

// Between returns a duration in [lo, hi], or lo if hi is not above it.
func (r *Rand) Between(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	h, _ := bits.Mul64(r.bits64(), uint64(hi-lo)+1)
	if r.tape != nil {
		h = r.tape.decide(h, uint64(hi-lo)+1)
	}
	return lo + time.Duration(h)
}

// Latency is how long a call takes in one direction.
type Latency struct {
	// Base is the least, Jitter the most that is added evenly.
	Base, Jitter time.Duration
	// Tail makes it heavy-tailed: the latency is doubled k times, k ≤ Tail, with
	// probability 2^-(k+1).
	Tail int
}

func (r *Rand) latency(l Latency) int64 {
	if l.Base == 0 && l.Jitter == 0 {
		return 0
	}
	d := int64(r.Between(l.Base, l.Base+l.Jitter))
	if l.Tail > 0 {
		k := uint64(min(bits.TrailingZeros64(r.bits64()), l.Tail))
		if r.tape != nil {
			k = r.tape.decide(k, uint64(l.Tail)+1)
		}
		d <<= k
	}
	return d
}

// fold mixes v into the running hash h.
func fold(h, v uint64) uint64 {
	hi, lo := bits.Mul64(h^v^golden, 0xd6e8feb86659fd93)
	return hi ^ lo ^ v
}

func hashString(s string) uint64 {
	h := uint64(len(s)) * golden
	for len(s) >= 8 {
		v := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		h = fold(h, v)
		s = s[8:]
	}
	var v uint64
	for i := 0; i < len(s); i++ {
		v |= uint64(s[i]) << (8 * i)
	}
	return fold(h, v)
}

func hashBytes(b []byte) uint64 {
	h := uint64(len(b)) * golden
	for len(b) >= 8 {
		h = fold(h, binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	var v uint64
	for i := 0; i < len(b); i++ {
		v |= uint64(b[i]) << (8 * i)
	}
	return fold(h, v)
}
