package soak

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// faultKind is what is done.
type faultKind string

const (
	faultKill    faultKind = "kill"    // SIGKILL of a star or an auditor, which is away for a while
	faultPause   faultKind = "pause"   // SIGSTOP of one, for longer than a session lives
	faultRestart faultKind = "restart" // SIGKILL of an etcd member or of the S3 server
	faultFill    faultKind = "fill"    // the disk, and space again later
)

// fault is one thing that goes wrong.
type fault struct {
	At   time.Duration // since the begin
	Kind faultKind
	Role role // of what it happens to; none of a fill
	Pick uint64
	For  time.Duration // how long it stays so
	// Left is how much space a fill leaves, as a share of the reserve.
	Left float64
}

// pace says how often a kind of fault comes, and how long it lasts.
type pace struct {
	kind        faultKind
	role        role // none: a star or an auditor
	every       time.Duration
	least, most time.Duration
	mostlyShort bool // two of three last no longer than a quarter of the way from least to most
}

// calm is how long before the end of the chaos nothing new goes wrong, and at its begin.
const calm = 3 * time.Second

// paces are the faults of a form. A pause is always longer than a session lives.
func paces(f Form, ttl time.Duration) []pace {
	common := []pace{
		{kind: faultKill, every: 8 * time.Second, least: 50 * time.Millisecond, most: 5 * time.Second, mostlyShort: true},
		{kind: faultPause, every: 40 * time.Second, least: ttl + ttl/3, most: 5 * ttl, mostlyShort: true},
	}
	if f == Single {
		return append(common, pace{kind: faultFill, every: 60 * time.Second, least: 2 * time.Second, most: 15 * time.Second})
	}
	return append(common,
		pace{kind: faultRestart, role: roleEtcd, every: 60 * time.Second, least: 200 * time.Millisecond, most: 8 * time.Second},
		pace{kind: faultRestart, role: roleS3, every: 75 * time.Second, least: 100 * time.Millisecond, most: 4 * time.Second})
}

// schedule is what goes wrong in a run: a pure function of its arguments, in the order of time.
func schedule(seed uint64, f Form, duration, ttl time.Duration) []fault {
	var all []fault
	for i, p := range paces(f, ttl) {
		r := rand.New(rand.NewPCG(seed, uint64(i)+1))
		for at := calm; ; {
			at += p.every/2 + rand64(r, p.every)
			if at > duration-calm {
				break
			}
			fault := fault{At: at, Kind: p.kind, Role: p.role, Pick: r.Uint64(), Left: r.Float64()}
			most := p.most
			if p.mostlyShort && r.IntN(3) > 0 {
				most = p.least + (p.most-p.least)/4
			}
			fault.For = p.least + rand64(r, most-p.least)
			all = append(all, fault)
		}
	}
	slices.SortStableFunc(all, func(a, b fault) int { return cmp.Compare(a.At, b.At) })
	return all
}

func rand64(r *rand.Rand, below time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(below) + 1))
}
