package metrics

// Names of the instruments. Prometheus sees them with underscores, a unit and, of counters, _total:
// nova.auditor.due.age becomes nova_auditor_due_age_seconds.
const (
	DueAge           = "nova.auditor.due.age"
	DueArmed         = "nova.auditor.due.armed"
	DueResolved      = "nova.auditor.due.resolved"
	Jobs             = "nova.auditor.jobs"
	JobLatency       = "nova.auditor.job.latency"
	StepLatency      = "nova.auditor.step.latency"
	LeaseSkips       = "nova.auditor.lease.skips"
	Discards         = "nova.auditor.discards"
	RewriteBytes     = "nova.auditor.rewrite.bytes"
	ReclaimedBytes   = "nova.auditor.reclaimed.bytes"
	ReclaimedObjects = "nova.auditor.reclaimed.objects"
	PoolBusy         = "nova.auditor.pool.busy"
	PoolWorked       = "nova.auditor.pool.worked"
	PoolWorkers      = "nova.auditor.pool.workers"

	MetastoreOps     = "nova.metastore.ops"
	MetastoreBytes   = "nova.metastore.bytes"
	MetastoreLatency = "nova.metastore.latency"
	ObjstoreRequests = "nova.objstore.requests"
	ObjstoreBytes    = "nova.objstore.bytes"
	ObjstoreLatency  = "nova.objstore.latency"
	ObjstoreClock    = "nova.objstore.clock.behind"

	AppendRecords = "nova.star.append.records"
	AppendBytes   = "nova.star.append.bytes"
	AppendLatency = "nova.star.append.latency"
	ReadRecords   = "nova.star.read.records"
	ReadBytes     = "nova.star.read.bytes"
	ReadLatency   = "nova.star.read.latency"
	SlotLatency   = "nova.star.slot.latency"
	SlotsAbsorbed = "nova.star.slots.absorbed"
	ChainsMinted  = "nova.star.chains.minted"
	ChainsFenced  = "nova.star.chains.fenced"
)
