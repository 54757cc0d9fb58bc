package differential

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
)

type verb string

const (
	create verb = "create"
	add    verb = "append"
	trim   verb = "trim"
	policy verb = "policy"
	remove verb = "delete"
	tick   verb = "tick"
	crash  verb = "crash"
	reopen verb = "reopen"
)

// action is one line of a history. Which fields count depends on the verb.
type action struct {
	verb     verb
	stream   string
	n, size  int            // records of an append, and bytes of each
	percent  int            // of the stream's records to trim
	policy   catalog.Policy // of create and policy
	duration time.Duration  // of a tick
	steps    int            // until a crash
	side     sim.Side       // of that step
}

func (a action) String() string {
	switch a.verb {
	case create, policy:
		return fmt.Sprintf("%s %s bytes=%d", a.verb, a.stream, a.policy.MaxBytes)
	case add:
		return fmt.Sprintf("append %s records=%d size=%d", a.stream, a.n, a.size)
	case trim:
		return fmt.Sprintf("trim %s to %d%%", a.stream, a.percent)
	case remove:
		return "delete " + a.stream
	case tick:
		return "tick " + a.duration.String()
	case crash:
		return fmt.Sprintf("crash %s the %dth step from here", a.side, a.steps)
	}
	return string(a.verb)
}

// streams are few, so that most actions meet what others have left.
var streams = []string{"s1", "s2", "s3"}

// actions draws one action; an append is the most frequent.
func actions() *rapid.Generator[action] {
	return rapid.Custom(func(t *rapid.T) action {
		a := action{
			verb:   rapid.SampledFrom([]verb{create, add, add, add, add, add, trim, policy, remove, tick, tick, crash, crash, reopen}).Draw(t, "verb"),
			stream: rapid.SampledFrom(streams).Draw(t, "stream"),
		}
		switch a.verb {
		case create, policy:
			// By bytes alone: an age would expire at moments that differ from one side to the other.
			a.policy.MaxBytes = rapid.SampledFrom([]uint64{0, 0, 1, 200, 2000}).Draw(t, "bytes")
		case add:
			a.n, a.size = rapid.IntRange(1, 5).Draw(t, "records"), rapid.IntRange(20, 600).Draw(t, "size")
		case trim:
			a.percent = rapid.IntRange(0, 100).Draw(t, "percent")
		case tick:
			a.duration = time.Duration(rapid.IntRange(1, 30_000).Draw(t, "ms")) * time.Millisecond
		case crash:
			a.steps = rapid.IntRange(1, 300).Draw(t, "steps")
			a.side = sim.Side(rapid.IntRange(0, 1).Draw(t, "side"))
		}
		return a
	})
}

// logical is a stream's logical state as a reader sees it.
type logical struct {
	First   uint64
	Records []string
	Policy  catalog.Policy
}

// modelled is what a stream should hold.
type modelled struct {
	life    int // streams that had the name before
	appends uint64
	records []string
	ends    []uint64 // byte position behind each record
	first   uint64
	policy  catalog.Policy
}

// expire moves the first readable offset: a record goes once what was appended behind it comes to the most bytes.
func (m *modelled) expire() {
	for m.policy.MaxBytes > 0 && m.first < uint64(len(m.ends)) && m.ends[len(m.ends)-1]-m.ends[m.first] >= m.policy.MaxBytes {
		m.first++
	}
}

func (m *modelled) append(records []string) {
	for _, r := range records {
		end := uint64(len(r))
		if n := len(m.ends); n > 0 {
			end += m.ends[n-1]
		}
		m.records, m.ends = append(m.records, r), append(m.ends, end)
	}
	m.appends++
	m.expire()
}

// model is the whole history's effect, by stream name.
type model map[string]*modelled

// state returns what a reader must see.
func (m model) state() map[string]logical {
	out := map[string]logical{}
	for name, s := range m {
		out[name] = logical{First: s.first, Records: append([]string{}, s.records[s.first:]...), Policy: s.policy}
	}
	return out
}
