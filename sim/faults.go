package sim

import "time"

// Faults says which faults are on and how strong. The zero value is a world
// without faults and without latency. All draws come from the fault stream, so
// that changing it never shifts the scheduling of tasks directly.
type Faults struct {
	// StoreLatency, BucketLatency and NetLatency hold for each direction of a call.
	StoreLatency, BucketLatency, NetLatency Latency

	// StoreUnavailable is the chance that a read or a session call fails, a read without an
	// effect; of the others, in the shared world, half have it and lose their answer.
	StoreUnavailable float64
	// CommitUnavailable is the chance that a commit is refused for now, without an effect.
	CommitUnavailable float64
	// The chances that a commit is answered ErrUnknown: without an effect, with
	// it, or with an effect that lands up to CommitLateMax later, when its
	// conditions are judged, whether the caller lives or not.
	CommitUnknownNoEffect, CommitUnknownEffect, CommitUnknownLate float64
	CommitLateMax                                                 time.Duration
	// DeadLate is the chance that a commit or a put which a killed process had under way, in the
	// shared world, lands as late as one whose outcome is unknown may, and not in its usual time.
	DeadLate float64
	// CommitSlow is the chance that a commit is on its way for up to CommitSlowMax:
	// others overtake it, so that conflicts come in storms.
	CommitSlow    float64
	CommitSlowMax time.Duration
	// ReadSlow is the chance that a read of the store is on its way for up to ReadSlowMax: what
	// is read next shows a world that has gone on.
	ReadSlow    float64
	ReadSlowMax time.Duration
	// ScanShort is the chance that a page ends before its limit.
	ScanShort float64
	// SessionLate is the chance that a session ends up to SessionLateMax after
	// its TTL; SessionEarly that it ends before, as after a partition of the store.
	SessionLate, SessionEarly float64
	SessionLateMax            time.Duration

	// BucketThrottle is the chance that a call is refused without an effect.
	BucketThrottle float64
	// BucketReadError is the chance that a read fails.
	BucketReadError float64
	// The chances that a put is answered ErrUnknown: without an effect, with it,
	// or with one that lands up to PutLateMax later, but not after its NotAfter.
	PutUnknownNoEffect, PutUnknownEffect, PutUnknownLate float64
	PutLateMax                                           time.Duration
	// DeleteUnknown is the chance that a whole delete is answered ErrUnknown,
	// DeletePartial that single keys of it fail; each with an effect or without.
	DeleteUnknown, DeletePartial float64
	// ListLag is how long a listing may show a key as it was before its last change;
	// a directory, in the embedded world, has none.
	ListLag time.Duration
	// CorruptRead and TruncateRead are the chances that a read gives wrong bytes.
	CorruptRead, TruncateRead float64

	// NetLost is the chance that a call made by Client.Do is answered
	// ErrLost: with its effect or without. It is drawn once each way.
	NetLost float64
}

// Faults returns what is on.
func (w *World) Faults() Faults { return w.faults }

// SetFaults replaces what is on. What was already drawn (late effects, calls
// under way) stays.
func (w *World) SetFaults(f Faults) { w.faults = f }

// StopFaults begins a phase without faults: everything but the plain latencies and the lag of listings
// is off, outages and partitions end. What is already under way still lands.
func (w *World) StopFaults() {
	f := w.faults
	w.faults = Faults{
		StoreLatency:  Latency{Base: f.StoreLatency.Base, Jitter: f.StoreLatency.Jitter},
		BucketLatency: Latency{Base: f.BucketLatency.Base, Jitter: f.BucketLatency.Jitter},
		NetLatency:    Latency{Base: f.NetLatency.Base, Jitter: f.NetLatency.Jitter},
		ListLag:       f.ListLag, // what a listing shows is a property of the bucket, and the only one comes late
	}
	w.storeDown, w.bucketDown = false, false
	for _, n := range w.nodes {
		n.cutStore, n.cutBucket, n.cutNet = false, false, false
	}
}

// SetOutage makes the store or the bucket fail for everyone, or ends that.
func (w *World) SetOutage(store, bucket bool) { w.storeDown, w.bucketDown = store, bucket }

// Partition cuts the node off from the store, the bucket or the network of
// clients, or ends that. Calls already at the dependency take effect; their
// answers are lost.
func (n *Node) Partition(store, bucket, net bool) {
	n.cutStore, n.cutBucket, n.cutNet = store, bucket, net
}

// DropKills forgets the kills that are planned and have not struck.
func (w *World) DropKills() { w.kills = nil }

// isCut tells whether the node cannot reach what the call is for.
func (w *World) isCut(inc *Incarnation, op Op) bool {
	if op.ofBucket() {
		return w.bucketDown || inc.node.cutBucket
	}
	return w.storeDown || inc.node.cutStore
}

// outageDelay is how long a caller waits until it gives up on what it cannot
// reach.
func (w *World) outageDelay() int64 {
	w.Mark("fault/unreachable")
	return int64(w.fault.Between(50*time.Millisecond, 2*time.Second))
}
