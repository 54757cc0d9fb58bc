// Package soak runs Nova for a while as real processes, lets everything go wrong that may, and finds out whether
// anything was lost.
//
// Clients append, read, trim, delete and create; a ledger for each stream remembers every acknowledgement and every record
// that was read. Meanwhile stars and auditors are killed and stopped, an etcd member and the S3 server are killed and
// started again, or the disk is filled. Then the chaos ends, the auditors work off what is due, everything
// is read and compared with the ledgers, all processes are stopped, and novad verify --list compares metadata and bucket.
//
// Everything random follows from a seed; what the processes make of it does not.
package soak

import (
	"time"
)

// Form is what runs.
type Form string

// The forms.
const (
	// Cluster is two stars, one of which audits too, and two nodes that audit only, on three etcd members and an S3 server.
	Cluster Form = "cluster"
	// Single is one process on Pebble and a directory.
	Single Form = "single"
)

// Options say how to run. All but Disk and Progress must be set.
type Options struct {
	Form     Form
	Duration time.Duration // of load and chaos; what follows takes about two minutes more
	Seed     uint64
	Rate     float64 // records a second, of all clients together
	Dir      string  // where everything is put
	Novad    string  // program
	Etcd     string  // program, of the cluster
	S3       string  // program, versitygw, of the cluster
	// Disk is a folder on a file system of its own, for the data of the single form. Empty: the data
	// is under Dir, and no disk is filled.
	Disk string
	// DrainFor bounds how long the auditors may take for what is due at the end.
	DrainFor time.Duration
	// Progress, if not nil, is called about every second, never twice at once.
	Progress func(Progress)
}

// Progress is how far a run is.
type Progress struct {
	Phase   string
	Elapsed time.Duration
	Kills   int64
	Pauses  int64
	Tally   tally
	Wrong   int // verdicts and surprises so far
}

// Faults counts what was done.
type Faults struct {
	Kills        int64 `json:"kills"`
	Pauses       int64 `json:"pauses"`
	EtcdRestarts int64 `json:"etcd_restarts"`
	S3Restarts   int64 `json:"s3_restarts"`
	Fills        int64 `json:"fills"`
	Skipped      int64 `json:"skipped"` // since others waited already
}

// Report is how a run went.
type Report struct {
	Form      Form    `json:"form"`
	Seed      uint64  `json:"seed"`
	Rate      float64 `json:"rate"`
	Seconds   float64 `json:"seconds"` // of load and chaos
	Completed bool    `json:"completed"`
	Faults
	Exits   int64 `json:"exits"`   // processes that ended by themselves, and were started again
	Crashes int   `json:"crashes"` // panics and fatal errors in their logs

	Streams int `json:"streams"` // made
	Deleted int `json:"deleted"` // of these, in the end
	// Undeleted counts deletions that were undone, and ReadFirst those before which all was read.
	Undeleted int `json:"undeleted"`
	ReadFirst int `json:"read_first"`
	tally
	verdicts

	Drained      bool    `json:"drained"` // nothing was due any more
	DrainSeconds float64 `json:"drain_seconds"`
	Due          string  `json:"due,omitempty"` // what was still due

	Objects       int    `json:"objects"`        // files of the bucket
	ObjectBytes   uint64 `json:"object_bytes"`   // their size
	Listed        int    `json:"listed"`         // what verify listed
	ListedBytes   uint64 `json:"listed_bytes"`   // its size
	Recorded      int    `json:"recorded"`       // objects that the metadata records
	Verified      uint64 `json:"verified"`       // records that verify read
	VerifiedBytes uint64 `json:"verified_bytes"` // their payload
	Leaked        int    `json:"leaked"`         // objects without a record, or longer than recorded
	Dangling      int    `json:"dangling"`       // objects that a record names and that are missing, shorter or wrong, and records without their object
	Amiss         int    `json:"amiss"`          // other findings of verify

	Surprises int      `json:"surprises"` // answers that no client may get
	Details   []string `json:"details,omitempty"`
}

// Held tells that the run was completed, and nothing was wrong.
func (r *Report) Held() bool {
	return r.Completed && r.Drained && r.clean() && r.Crashes == 0 && r.Exits == 0 && r.Surprises == 0 &&
		r.Leaked == 0 && r.Dangling == 0 && r.Amiss == 0 && r.Objects == r.Listed && r.ObjectBytes == r.ListedBytes
}
