package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/nova-store/nova/metastore"
)

// NodeTiming is what a running node says of the durations that others' deletions rest on.
type NodeTiming struct {
	Node string // a star's name, or the one of a node that audits only
	PutHorizon, SessionTTL, MaxClockSkew, JobDeadline,
	ReapGrace, TrimGrace, RetireGrace, OrphanGrace time.Duration
}

// OfNode is what a node says of its timing.
func (t Timing) OfNode(node string) NodeTiming {
	return NodeTiming{
		Node: node, PutHorizon: t.PutHorizon, SessionTTL: t.SessionTTL, MaxClockSkew: t.MaxClockSkew, JobDeadline: t.JobDeadline,
		ReapGrace: t.ReapGrace, TrimGrace: t.TrimGrace, RetireGrace: t.RetireGrace, OrphanGrace: t.OrphanGrace,
	}
}

// said is a duration of a node under the name of its field in [Timing].
type said struct {
	field string
	value *time.Duration
	// grace: the least of several nodes counts, else the largest.
	grace bool
}

func (v *NodeTiming) all() [8]said {
	return [8]said{
		{"PutHorizon", &v.PutHorizon, false}, {"SessionTTL", &v.SessionTTL, false},
		{"MaxClockSkew", &v.MaxClockSkew, false}, {"JobDeadline", &v.JobDeadline, false},
		{"ReapGrace", &v.ReapGrace, true}, {"TrimGrace", &v.TrimGrace, true},
		{"RetireGrace", &v.RetireGrace, true}, {"OrphanGrace", &v.OrphanGrace, true},
	}
}

func (v NodeTiming) encode() []byte {
	e := newEncoder(64 + len(v.Node))
	e.string(v.Node)
	for _, s := range v.all() {
		e.int(int64(*s.value))
	}
	return e.b
}

// DecodeNodeTiming reads a NodeTiming.
func DecodeNodeTiming(b []byte) (NodeTiming, error) {
	d := newDecoder(b)
	v := NodeTiming{Node: d.string()}
	for _, s := range v.all() {
		*s.value = time.Duration(d.int())
	}
	return v, d.done("node timing")
}

// PublishTiming puts a node's timing under a session, with which it goes; it is written under the instance, another one for each start, so that
// what a crashed process has said stands until its session ends. That session is to last as long after the process as its PUTs may
// take effect. A late twin dies with the session, and until then writes the same.
func (c *Catalog) PublishTiming(ctx context.Context, session metastore.SessionID, instance string, v NodeTiming) error {
	if err := CheckNodeName(instance); err != nil {
		return err
	}
	var b batch
	b.write(metastore.PutUnder(session, TimingKey(instance), v.encode()))
	_, _, err := c.commit(ctx, "publishing the timing of node "+v.Node, b.done())
	return err
}

// Timings reads what nodes say of their timing, but for one instance, in the order of the instances.
func (c *Catalog) Timings(ctx context.Context, but string) ([]NodeTiming, error) {
	var out []NodeTiming
	err := c.walk(ctx, metastore.Prefix(TimingsPrefix), 512, func(rec metastore.Record) (bool, error) {
		if rec.Key == TimingKey(but) {
			return true, nil
		}
		v, err := DecodeNodeTiming(rec.Value)
		if err != nil {
			return false, fmt.Errorf("%s: %w", rec.Key, err)
		}
		out = append(out, v)
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the timing of the nodes: %w", err)
	}
	return out, nil
}

// Beside judges whether a node with this timing may run beside another one, and names the fields of which the other has other values.
//
// They need not be equal, or no value could be changed but by a stop of all. What must hold is that whoever deletes waits for whoever may still write:
// so the largest horizon, session TTL, skew and job deadline of both, and the least of each grace, must be safe as one timing (the rules of [Timing.Validate] but for the last, which is about a writer's own puts). To
// look at pairs is enough: a grace must exceed what one writer takes, its own session TTL or job deadline and its own horizon, and the skew is between two clocks.
//
// The error is an [UnsafeTimingError].
func (t Timing) Beside(o NodeTiming) (differ []string, err error) {
	mine, both := t.OfNode(""), t.OfNode("")
	own, worst := mine.all(), both.all()
	for i, s := range o.all() {
		if *s.value != *own[i].value {
			differ = append(differ, s.field)
		}
		if s.grace {
			*worst[i].value = min(*worst[i].value, *s.value)
		} else {
			*worst[i].value = max(*worst[i].value, *s.value)
		}
	}
	if len(differ) == 0 {
		return nil, nil
	}
	t.PutHorizon, t.SessionTTL, t.MaxClockSkew, t.JobDeadline = both.PutHorizon, both.SessionTTL, both.MaxClockSkew, both.JobDeadline
	t.ReapGrace, t.TrimGrace, t.RetireGrace, t.OrphanGrace = both.ReapGrace, both.TrimGrace, both.RetireGrace, both.OrphanGrace
	return differ, t.safe(false)
}
