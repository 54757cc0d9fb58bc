package play

import (
	"encoding/json"
	"fmt"
)

// A plan can be saved and read back, so that a run outlives the way in which its seed
// was drawn, and can be made smaller part by part. Each of its structs lists its fields:
// one that is not listed would be lost, which a test finds.

// field is one part of a plan under its name in a saved file.
type field struct {
	name string
	at   any // a pointer to it
}

func (p *plan) fields() []field {
	return []field{
		{"world", &p.config}, {"nodes", &p.nodes}, {"skews", &p.skews}, {"drifts", &p.drifts}, {"writers", &p.writers},
		{"readers", &p.readers}, {"read_pause", &p.readPause}, {"looks", &p.looks}, {"lives", &p.lives}, {"retired", &p.retired}, {"retired_at", &p.retiredAt},
		{"garbage", &p.garbage}, {"stall", &p.stall}, {"streams", &p.streams}, {"chaos", &p.chaos}, {"names", &p.names},
		{"joins", &p.joins}, {"sleep", &p.sleep},
	}
}

func (c *chaosPlan) fields() []field {
	return []field{
		{"every", &c.every}, {"kill", &c.kill}, {"pause", &c.pause}, {"partition", &c.cut}, {"drain", &c.drain},
		{"expire", &c.expire}, {"outage", &c.outage}, {"clock", &c.clock}, {"down", &c.down}, {"skew", &c.skew},
		{"leave", &c.leave}, {"storm", &c.storm}, {"pause_most", &c.pauseMost},
	}
}

func (l *livesPlan) fields() []field {
	return []field{
		{"rounds", &l.rounds}, {"gap", &l.gap}, {"all", &l.all}, {"stagger", &l.stagger}, {"settled", &l.settled},
		{"trim", &l.trim}, {"policy", &l.policy}, {"remove", &l.remove}, {"undelete", &l.undelete}, {"age", &l.age}, {"bytes", &l.bytes},
		{"away", &l.away}, {"policies", &l.policies}, {"backdate", &l.backdate},
	}
}

func (w *writerPlan) fields() []field {
	return []field{
		{"kind", &w.kind}, {"streams", &w.streams}, {"appends", &w.appends}, {"records", &w.records}, {"size", &w.size},
		{"pause", &w.pause}, {"epoch_every", &w.epochEvery}, {"burst", &w.burst}, {"producers", &w.producersPerSeat},
	}
}

// MarshalJSON and UnmarshalJSON are those of all the structs above.
func (p *plan) MarshalJSON() ([]byte, error)      { return encodeFields(p.fields()) }
func (c *chaosPlan) MarshalJSON() ([]byte, error) { return encodeFields(c.fields()) }
func (l *livesPlan) MarshalJSON() ([]byte, error) { return encodeFields(l.fields()) }
func (w *writerPlan) MarshalJSON() ([]byte, error) {
	return encodeFields(w.fields())
}
func (p *plan) UnmarshalJSON(b []byte) error       { return decodeFields(b, p.fields()) }
func (c *chaosPlan) UnmarshalJSON(b []byte) error  { return decodeFields(b, c.fields()) }
func (l *livesPlan) UnmarshalJSON(b []byte) error  { return decodeFields(b, l.fields()) }
func (w *writerPlan) UnmarshalJSON(b []byte) error { return decodeFields(b, w.fields()) }

func encodeFields(fields []field) ([]byte, error) {
	out := make(map[string]any, len(fields))
	for _, f := range fields {
		out[f.name] = f.at
	}
	return json.Marshal(out)
}

// decodeFields reads the fields that are there; the others stay as they are. A name that is not
// known is an error: what it says would be ignored.
func decodeFields(b []byte, fields []field) error {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	for _, f := range fields {
		raw, ok := in[f.name]
		if !ok {
			continue
		}
		if err := json.Unmarshal(raw, f.at); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		delete(in, f.name)
	}
	for name := range in {
		return fmt.Errorf("this program has no %q in a plan", name)
	}
	return nil
}

// clone returns a copy that shares nothing with p.
func (p *plan) clone() *plan {
	b, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("a plan that cannot be written: %v", err))
	}
	out := new(plan)
	if err := json.Unmarshal(b, out); err != nil {
		panic(fmt.Sprintf("a plan that cannot be read: %v", err))
	}
	return out
}
