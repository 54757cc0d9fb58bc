package star

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

// Options of a Star. Zero fields take the defaults given.
type Options struct {
	// Name is the star's, unique among its cluster's stars; Address is what its
	// route tells clients.
	Name, Address string
	// Window is W: slots being PUT are below the first not known durable + W. 16.
	Window int
	// Linger is how long a flight waits for more while another is in the air. 5 ms;
	// below 0: not at all.
	Linger time.Duration
	// FlightBytes of payload let a flight leave at once. 1 MiB.
	FlightBytes int
	// InlineBytes of payload at most are put into a flight's slot itself; a larger flight's go into
	// a bundle. 1 MiB.
	InlineBytes int
	// MaxRecordBytes bounds a record's payload. 16 MiB, which is also the most.
	MaxRecordBytes int
	// SlotDeadline bounds how long a slot's PUT may stay undecided, and before it the announcement
	// and PUT of its bundle. 10 s.
	SlotDeadline time.Duration
	// TailBytes bounds the records kept in memory for reads. 64 MiB; below 0: none.
	TailBytes int64
	// MaxPendingBytes bounds the appends that were accepted but not answered, with
	// their bookkeeping. 128 MiB. A lone append is taken whatever its size. The objects
	// built of them, until they are PUT, are as much again at most.
	MaxPendingBytes int64
	// Room refuses appends for which the bucket has no room left, with an [objstore.ErrNoRoom]. Nil: none are.
	Room *objstore.Room
	// CacheStreams bounds the streams whose names and records are cached. 10,000.
	CacheStreams int
	// MaxFollowers bounds the readers that wait for records to come. 10,000.
	MaxFollowers int
	// Codec compresses slots. format.Zstd().
	Codec format.Codec
	// Logger gets what an operator should know. Default: discarded.
	Logger *slog.Logger
	// Events, if not nil, is told what happens.
	Events Events
	// Embedded: the put horizon is 0, since a dead process cannot write and no
	// session ends without it.
	Embedded bool
}

// maxAppendRecords bounds the records of one append, so that the framing of many
// small ones stays small beside the largest object.
const maxAppendRecords = 1 << 20

// maxProducerID bounds a producer's id, in bytes: heads hold 64 of them, and a
// commit many heads.
const maxProducerID = 128

func (o Options) withDefaults() Options {
	setDefault(&o.Window, 16)
	setDefault(&o.Linger, 5*time.Millisecond)
	setDefault(&o.FlightBytes, 1<<20)
	setDefault(&o.InlineBytes, 1<<20)
	setDefault(&o.MaxRecordBytes, format.MaxRecordBytes)
	setDefault(&o.SlotDeadline, 10*time.Second)
	setDefault(&o.TailBytes, 64<<20)
	setDefault(&o.MaxPendingBytes, 128<<20)
	setDefault(&o.CacheStreams, 10_000)
	setDefault(&o.MaxFollowers, 10_000)
	if o.Codec == nil {
		o.Codec = format.Zstd()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Events == nil {
		o.Events = noEvents{}
	}
	return o
}

func setDefault[T int | int64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

func (o Options) check(t catalog.Timing) error {
	if err := catalog.CheckNodeName(o.Name); err != nil {
		return err
	}
	switch {
	case o.Window < 1 || o.Window > 1024:
		return fmt.Errorf("star %s: a window of %d slots; it has 1 to 1024", o.Name, o.Window)
	case o.FlightBytes < 1 || o.FlightBytes > format.MaxRecordBytes:
		return fmt.Errorf("star %s: flights of %d bytes; they have 1 to %d", o.Name, o.FlightBytes, format.MaxRecordBytes)
	case o.InlineBytes < 1 || o.InlineBytes > format.MaxRecordBytes:
		return fmt.Errorf("star %s: %d bytes inline; the bound is 1 to %d", o.Name, o.InlineBytes, format.MaxRecordBytes)
	case o.MaxRecordBytes < 1 || o.MaxRecordBytes > format.MaxRecordBytes:
		return fmt.Errorf("star %s: records of up to %d bytes; the bound is 1 to %d", o.Name, o.MaxRecordBytes, format.MaxRecordBytes)
	case o.SlotDeadline < 0 || o.MaxPendingBytes < 0 || o.CacheStreams < 0 || o.MaxFollowers < 0:
		return fmt.Errorf("star %s: the slot deadline, the pending bytes, the cached streams and the followers must not be negative", o.Name)
	case o.Embedded != (t.PutHorizon == 0):
		return fmt.Errorf("star %s: embedded is %v, but the put horizon is %v", o.Name, o.Embedded, t.PutHorizon)
	}
	return nil
}
