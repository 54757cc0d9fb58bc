package service

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nova-store/nova/catalog"
)

// Policy is a stream's retention; a zero field is no bound.
type Policy struct {
	// MaxAge is how old a record gets before it is expired, to the millisecond.
	MaxAge time.Duration
	// MaxBytes is how many bytes of payload may lie behind a record before it is expired.
	MaxBytes uint64
}

func (p Policy) catalog() catalog.Policy {
	ms := p.MaxAge.Milliseconds()
	if ms == 0 && p.MaxAge > 0 {
		ms = 1 // not for ever
	}
	return catalog.Policy{MaxAgeMS: ms, MaxBytes: p.MaxBytes}
}

// String is the policy for people.
func (p Policy) String() string {
	var parts []string
	if p.MaxAge != 0 {
		parts = append(parts, "max age "+p.MaxAge.String())
	}
	if p.MaxBytes != 0 {
		parts = append(parts, fmt.Sprintf("max bytes %d", p.MaxBytes))
	}
	if len(parts) == 0 {
		return "no policy"
	}
	return strings.Join(parts, ", ")
}

// StreamInfo describes a stream.
type StreamInfo struct {
	Name string
	ID   catalog.StreamID
	// Created is when the stream was made.
	Created time.Time
	Policy  Policy
	// FirstOffset is the first readable offset, NextOffset that of the next record. In a list the first
	// is exact to a span where a policy expires records: none below it is readable.
	FirstOffset, NextOffset uint64
	// Bytes is the payload of the readable records, and at most of as many more as share a span with the
	// first of them.
	Bytes uint64
}

// idPrefix marks a stream's id where a name could stand.
const idPrefix = "id:"

// ByID is how the operations name a stream by its id, whatever its name.
func ByID(id catalog.StreamID) string { return idPrefix + id.String() }

// ParseID reads what ByID gives; ok is false for everything else, names included.
func ParseID(stream string) (id catalog.StreamID, ok bool) {
	digits, ok := strings.CutPrefix(stream, idPrefix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 16, 64)
	id = catalog.StreamID(n)
	return id, err == nil && id != 0 && id.String() == digits
}

// checkNewName refuses the names that a new stream can't have: besides illegal ones those that
// would be taken for an id.
func checkNewName(name string) error {
	if _, ok := ParseID(name); ok {
		return fmt.Errorf("%w: stream name %q would be taken for an id", catalog.ErrBadName, name)
	}
	return catalog.CheckStreamName(name)
}

// PolicyConflictError: a stream of the name exists, but its policy is another one than asked for.
type PolicyConflictError struct {
	Name       string
	Have, Want Policy
}

func (e *PolicyConflictError) Error() string {
	return fmt.Sprintf("stream %q exists with another policy (%v) than asked for (%v)", e.Name, e.Have, e.Want)
}

// CreateStream makes a stream, or finds the one of that name; created tells which. A policy of nil asks for
// none and accepts any; a stream that exists with another policy than a given one is left as
// it is: a *[PolicyConflictError].
func (s *Service) CreateStream(ctx context.Context, name string, policy *Policy) (info StreamInfo, created bool, err error) {
	if err := checkNewName(name); err != nil {
		return StreamInfo{}, false, err
	}
	var want catalog.Policy
	if policy != nil {
		want = policy.catalog()
	}
	if err := catalog.CheckPolicy(want); err != nil {
		return StreamInfo{}, false, err
	}
	v, created, err := s.cat.CreateStream(ctx, name, want)
	if err != nil {
		return StreamInfo{}, false, err
	}
	if !created && policy != nil && v.Stream.Policy != want {
		return StreamInfo{}, false, &PolicyConflictError{Name: name, Have: policyOf(v), Want: *policy}
	}
	info, err = s.describe(ctx, v)
	return info, created, err
}

// Stream describes a stream, as it is now.
func (s *Service) Stream(ctx context.Context, stream string) (info StreamInfo, err error) {
	err = s.with(ctx, stream, func(id catalog.StreamID) error {
		v, err := s.cat.ReadStream(ctx, id)
		if err == nil {
			info, err = s.describe(ctx, v)
		}
		return err
	})
	return info, err
}

// Bounds of the pages of lists.
const (
	DefaultListStreams = 100
	MaxListStreams     = 1000
	DefaultPending     = 100
	MaxPending         = 1000
)

// ListStreams describes the streams whose names begin with prefix and come after the name after (empty: from the
// first), in the order of their names' bytes, limit at most (0: DefaultListStreams); more tells that there are further ones.
func (s *Service) ListStreams(ctx context.Context, prefix, after string, limit int) (streams []StreamInfo, more bool, err error) {
	if limit, err = bound("streams", limit, DefaultListStreams, MaxListStreams); err != nil {
		return nil, false, err
	}
	views, more, err := s.cat.ListStreams(ctx, prefix, after, limit)
	if err != nil {
		return nil, false, err
	}
	streams = make([]StreamInfo, 0, len(views))
	for _, v := range views {
		judged, err := s.cat.Readable(ctx, v, s.clk.Now())
		if err != nil {
			return nil, false, err
		}
		streams = append(streams, infoOf(v, judged, judged.First))
	}
	return streams, more, nil
}

// PolicyChange is a change of a policy; what is nil stays.
type PolicyChange struct {
	MaxAge   *time.Duration
	MaxBytes *uint64
}

// apply is what the change makes of a policy.
func (c PolicyChange) apply(p catalog.Policy) catalog.Policy {
	if c.MaxAge != nil {
		p.MaxAgeMS = Policy{MaxAge: *c.MaxAge}.catalog().MaxAgeMS
	}
	if c.MaxBytes != nil {
		p.MaxBytes = *c.MaxBytes
	}
	return p
}

// SetPolicy changes a stream's policy. What the old one expired stays unreadable.
// Errors: [catalog.ErrNoStream], [catalog.ErrBadPolicy].
func (s *Service) SetPolicy(ctx context.Context, stream string, change PolicyChange) (info StreamInfo, err error) {
	if change.MaxAge != nil && *change.MaxAge < 0 {
		return StreamInfo{}, fmt.Errorf("%w: a max age of %v is negative", catalog.ErrBadPolicy, *change.MaxAge)
	}
	err = s.with(ctx, stream, func(id catalog.StreamID) error {
		v, err := s.cat.ChangePolicy(ctx, id, change.apply)
		if err == nil {
			info, err = s.describe(ctx, v)
		}
		return err
	})
	return info, err
}

// Trim makes all records below an offset unreadable, for ever, and describes the stream as it is then. An offset
// at or below the first readable one changes nothing.
// Errors: [catalog.ErrNoStream]; a *[catalog.BeyondEndError] beyond the next offset.
func (s *Service) Trim(ctx context.Context, stream string, before uint64) (info StreamInfo, err error) {
	err = s.with(ctx, stream, func(id catalog.StreamID) error {
		if _, err := s.cat.TrimStream(ctx, id, before); err != nil {
			return err
		}
		v, err := s.cat.ReadStream(ctx, id)
		if err == nil {
			info, err = s.describe(ctx, v)
		}
		return err
	})
	return info, err
}

// DeletedStream tells which stream was deleted, and until when its records stay.
type DeletedStream struct {
	ID catalog.StreamID
	// Deleted is when; Until is when its records may begin to be destroyed.
	Deleted, Until time.Time
}

// DeleteStream deletes a stream: at once it cannot be read or appended to, and its name is free for another.
// Errors: [catalog.ErrNoStream].
func (s *Service) DeleteStream(ctx context.Context, stream string) (out DeletedStream, err error) {
	err = s.with(ctx, stream, func(id catalog.StreamID) error {
		d, err := s.cat.DeleteStream(ctx, id)
		out = DeletedStream{ID: d.ID, Deleted: d.At.UTC(), Until: d.Until.UTC()}
		return err
	})
	return out, err
}

// ErrNotByID: a deleted stream has no name.
var ErrNotByID = errors.New("a deleted stream is named by its id alone, as id:0123456789abcdef")

// UndeleteStream brings a deleted stream back, under its name; of one that is not deleted it changes nothing. The stream is named by its id.
// Errors: [ErrNotByID]; [catalog.ErrNoStream]: it is gone; [catalog.ErrTearing]; [catalog.ErrNameTaken].
func (s *Service) UndeleteStream(ctx context.Context, stream string) (StreamInfo, error) {
	id, ok := ParseID(stream)
	if !ok {
		return StreamInfo{}, fmt.Errorf("%w: %q", ErrNotByID, stream)
	}
	v, err := s.cat.UndeleteStream(ctx, id)
	if err != nil {
		return StreamInfo{}, err
	}
	return s.describe(ctx, v)
}

// PendingItem is one piece of the auditor's work that concerns a stream.
type PendingItem struct {
	Queue   string
	Key     string // of the due marker
	Subject string // an object, or a chain's coordinate
	// Ready is when it is ripe; zero: always.
	Ready time.Time
	// Bytes that it is about, of all streams; 0: not known.
	Bytes uint64
	// Shared: it concerns more streams than it is attributed to by name.
	Shared bool
	// Damaged: some of what it needs can't be read.
	Damaged bool
}

// Pending lists the auditor's work that concerns a stream, limit items at most (0: DefaultPending); more tells that there
// are further ones. Named by its id a stream may be deleted, or gone.
func (s *Service) Pending(ctx context.Context, stream string, limit int) (items []PendingItem, more bool, err error) {
	if limit, err = bound("items", limit, DefaultPending, MaxPending); err != nil {
		return nil, false, err
	}
	id, ok := ParseID(stream)
	if !ok {
		if id, err = s.cat.FindStream(ctx, stream); err != nil {
			return nil, false, err
		}
	}
	found, more, err := s.cat.Pending(ctx, id, limit)
	if err != nil {
		return nil, false, err
	}
	items = make([]PendingItem, 0, len(found))
	for _, i := range found {
		items = append(items, PendingItem{string(i.Queue), i.Key, i.Subject, i.Ready.UTC(), i.Bytes, i.Shared, i.Damaged})
	}
	return items, more, nil
}

// with does something with the stream of a name or an id. A name may be deleted and given to a new stream
// between its look-up and what is done: then it is looked up once more.
func (s *Service) with(ctx context.Context, stream string, f func(catalog.StreamID) error) error {
	if id, ok := ParseID(stream); ok {
		return f(id)
	}
	var err error
	for range 2 {
		var id catalog.StreamID
		if id, err = s.cat.FindStream(ctx, stream); err != nil {
			return err
		}
		if err = f(id); err == nil || !errors.Is(err, catalog.ErrNoStream) {
			return err
		}
	}
	return fmt.Errorf("stream %q: %w", stream, err)
}

// describe describes a stream as read, with its first offset to the record.
func (s *Service) describe(ctx context.Context, v catalog.StreamView) (StreamInfo, error) {
	judged, err := s.cat.Readable(ctx, v, s.clk.Now())
	if err != nil {
		return StreamInfo{}, err
	}
	first, err := s.star.FirstOffset(ctx, v)
	if err != nil {
		return StreamInfo{}, err
	}
	return infoOf(v, judged, first), nil
}

func policyOf(v catalog.StreamView) Policy {
	return Policy{MaxAge: time.Duration(v.Stream.Policy.MaxAgeMS) * time.Millisecond, MaxBytes: v.Stream.Policy.MaxBytes}
}

func infoOf(v catalog.StreamView, judged catalog.Readable, first uint64) StreamInfo {
	return StreamInfo{
		Name:        v.Stream.Name,
		ID:          v.ID,
		Created:     time.UnixMilli(v.Stream.Created).UTC(),
		Policy:      policyOf(v),
		FirstOffset: first,
		NextOffset:  v.Head.Next,
		Bytes:       v.Head.Bytes - min(judged.FirstBytes, v.Head.Bytes),
	}
}
