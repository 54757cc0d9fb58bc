package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Live returns what the objects in the bucket hold, and not what they are called: of each kind of object
// and stream, by its name, the readable offsets that the catalog names in them, and each kind of which there is an
// object that nothing names, or of which so much is dead that it is to be rewritten. It is sorted, so that two worlds that hold the same return the same. How
// records are dealt to objects is left out, since that depends on what was ripe at which moment; with it how many
// records that are not readable any more lie in an object, or a span, with readable ones.
func (c *Checker) Live() []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(c.streams)) {
		s := c.streams[id]
		kept := s.mark.Watermark
		if c.names[s.rec.Name] == id {
			kept = c.Readable(s.rec.Name)
		}
		var kind string
		var first, end uint64 // of the range so far
		flush := func() {
			if end > first {
				out = append(out, fmt.Sprintf("%s %s[%d..%d]", kind, s.rec.Name, first, end-1))
			}
		}
		for _, last := range slices.Sorted(maps.Keys(s.byLast)) {
			sp := s.byLast[last]
			of, _, _ := strings.Cut(sp.object, "/")
			if of != kind || sp.first != end {
				flush()
				kind, first = of, max(sp.first, kept)
			}
			end = last + 1
		}
		flush()
	}
	for key, o := range c.objects {
		kind, _, _ := strings.Cut(key, "/")
		if o.exists && o.kind != probeKind && o.spans == 0 {
			out = append(out, kind+" that nothing names")
		}
		if dead, _ := c.dead(o); dead > 0 {
			out = append(out, kind+" that is to be rewritten")
		}
	}
	slices.Sort(out)
	return out
}
