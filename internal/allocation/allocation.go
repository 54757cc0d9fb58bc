// Package allocation measures, in tests, what a decoder allocates, so that fuzz targets can hold it to a
// bound in proportion to its input: hostile counts must not make a reader take memory by their word.
package allocation

import (
	"math"
	"runtime/metrics"
	"testing"
)

// slack is what else may be allocated meanwhile: by the testing package's own goroutines, and the first
// use of a package's tables and pools.
const slack = 1 << 20

// tries is how often it is measured: a fuzzer allocates in bursts beside its target, a decoder each time alike.
const tries = 3

// Bounded fails the test if decode allocates more than limit bytes, give or take 1 MiB that others may. It
// may call decode several times, and must be given one that comes to the same each time.
func Bounded(t testing.TB, limit int, decode func()) {
	t.Helper()
	least := uint64(math.MaxUint64)
	for range tries {
		before := total()
		decode()
		if least = min(least, total()-before); least <= uint64(limit)+slack {
			return
		}
	}
	t.Fatalf("decoding allocated %d bytes, of an input that allows %d", least, limit)
}

// total is how many bytes the program has allocated in its life. Small ones are counted a span late, large
// ones, which matter here, at once.
func total() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
