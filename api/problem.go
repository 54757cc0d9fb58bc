package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/star"
)

// Types of problems. They are stable: programs may decide by them.
const (
	problemBase = "urn:nova:problem:"

	ProblemBadName         = problemBase + "illegal-stream-name"
	ProblemBadPolicy       = problemBase + "illegal-policy"
	ProblemPolicyConflict  = problemBase + "stream-exists-with-another-policy"
	ProblemBadRequest      = problemBase + "invalid-request"
	ProblemNoStream        = problemBase + "stream-not-found"
	ProblemStreamTearing   = problemBase + "stream-being-destroyed"
	ProblemNameTaken       = problemBase + "stream-name-taken"
	ProblemNoStar          = problemBase + "star-not-found"
	ProblemStarLive        = problemBase + "star-live"
	ProblemUnauthorized    = problemBase + "unauthorized"
	ProblemNoRoute         = problemBase + "not-found"
	ProblemMethod          = problemBase + "method-not-allowed"
	ProblemMediaType       = problemBase + "unsupported-media-type"
	ProblemNotAcceptable   = problemBase + "not-acceptable"
	ProblemRecordTooLarge  = problemBase + "record-too-large"
	ProblemBodyTooLarge    = problemBase + "request-too-large"
	ProblemWrongOffset     = problemBase + "wrong-offset"
	ProblemProducerGap     = problemBase + "producer-sequence-gap"
	ProblemProducerFenced  = problemBase + "producer-fenced"
	ProblemProducerLost    = problemBase + "producer-state-lost"
	ProblemTrimmed         = problemBase + "trimmed"
	ProblemBeyondEnd       = problemBase + "offset-beyond-end"
	ProblemOutcomeUnknown  = problemBase + "outcome-unknown"
	ProblemOverloaded      = problemBase + "overloaded"
	ProblemStorageFull     = problemBase + "storage-full"
	ProblemUnavailable     = problemBase + "unavailable"
	ProblemCorruptedObject = problemBase + "corrupted-object"
	ProblemLaterVersion    = problemBase + "later-version"
	ProblemTimeout         = problemBase + "request-timeout"
	ProblemVerifying       = problemBase + "verify-running"
	ProblemBackupRunning   = problemBase + "backup-running"
	ProblemNoBackup        = problemBase + "backup-elsewhere"
	ProblemInternal        = problemBase + "internal"
)

// retryAfterSeconds is what a refused client is asked to wait.
const retryAfterSeconds = 1

// Problem is a problem document of RFC 9457. The server answers with it, the client
// returns it as an error.
type Problem struct {
	Type   string `json:"type" doc:"Stable URI of the kind of problem."`
	Title  string `json:"title" doc:"The kind of problem, for people."`
	Status int    `json:"status" doc:"HTTP status code."`
	Detail string `json:"detail" doc:"What happened here, and what to do."`

	FirstOffset  *uint64 `json:"first_offset,omitempty" doc:"Of trimmed: the first readable offset."`
	NextOffset   *uint64 `json:"next_offset,omitempty" doc:"Of wrong-offset and offset-beyond-end: the stream's next offset."`
	NextSequence *uint64 `json:"next_sequence,omitempty" doc:"Of producer-sequence-gap: the sequence that is accepted next."`
	Record       *int    `json:"record,omitempty" doc:"Of record-too-large: which record of the request, from 0."`
	Object       string  `json:"object,omitempty" doc:"Of corrupted-object: the object's key."`
}

// Error returns the detail, which says what to do.
func (p *Problem) Error() string { return p.Detail }

// GetStatus is the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType makes it a problem document.
func (p *Problem) ContentType(string) string { return TypeProblem }

// GetHeaders asks a client that was refused to come back later.
func (p *Problem) GetHeaders() http.Header {
	if p.Status != http.StatusServiceUnavailable && p.Status != http.StatusTooManyRequests {
		return nil
	}
	return http.Header{"Retry-After": {strconv.Itoa(retryAfterSeconds)}}
}

var (
	_ huma.StatusError       = (*Problem)(nil)
	_ huma.ContentTypeFilter = (*Problem)(nil)
	_ huma.HeadersError      = (*Problem)(nil)
)

func problem(status int, typ, title, format string, a ...any) *Problem {
	return &Problem{Type: typ, Title: title, Status: status, Detail: fmt.Sprintf(format, a...)}
}

// beyondEnd answers a read or a trim beyond a stream's next offset.
func beyondEnd(offset, next uint64, instead string) *Problem {
	return withNext(next, problem(http.StatusRequestedRangeNotSatisfiable, ProblemBeyondEnd, "Offset beyond the end",
		"offset %d is beyond the stream's end, its next offset is %d: %s", offset, next, instead))
}

func withNext(next uint64, p *Problem) *Problem {
	p.NextOffset = &next
	return p
}

func unavailable(err error) *Problem {
	return problem(http.StatusServiceUnavailable, ProblemUnavailable, "Unavailable", "%v: try again after a pause", err)
}

// problemOf turns an error of the service into the answer. known is false for what
// has no answer of its own: it is for the log, since the client is told no more than that.
func problemOf(err error) (p *Problem, known bool) {
	var (
		already *Problem
		large   *star.TooLargeError
		offset  *star.WrongOffsetError
		gap     *star.ProducerGapError
		trimmed *star.TrimmedError
		beyond  *star.BeyondEndError
		past    *catalog.BeyondEndError
		policy  *service.PolicyConflictError
		corrupt *format.CorruptError
	)
	switch {
	case errors.As(err, &already):
		return already, true
	case errors.Is(err, star.ErrProducerLost):
		return problem(http.StatusConflict, ProblemProducerLost, "Producer state lost",
			"the stream does not remember this producer any more, so that an earlier try may have been appended or not; read the stream's end to find out, then go on as a new producer"), true
	case errors.Is(err, star.ErrOutcomeUnknown):
		// Before what it may wrap: a refusal of this try says nothing of the one before.
		return problem(http.StatusInternalServerError, ProblemOutcomeUnknown, "Outcome unknown",
			"the records may have been appended or not, or may still be; an idempotent producer repeats the very same append, others read the stream's end first"), true
	case errors.Is(err, catalog.ErrBadName):
		return problem(http.StatusBadRequest, ProblemBadName, "Illegal stream name", "%v", err), true
	case errors.Is(err, catalog.ErrBadPolicy):
		return problem(http.StatusBadRequest, ProblemBadPolicy, "Illegal policy", "%v", err), true
	case errors.As(err, &policy):
		return problem(http.StatusConflict, ProblemPolicyConflict, "Stream exists with another policy",
			"%v; nothing was changed: create it without a policy to take it as it is, or change its policy", err), true
	case errors.Is(err, service.ErrNotByID), errors.Is(err, errSyntax), errors.Is(err, star.ErrBadRequest):
		return problem(http.StatusBadRequest, ProblemBadRequest, "Invalid request", "%v", err), true
	case errors.Is(err, catalog.ErrTearing):
		return problem(http.StatusGone, ProblemStreamTearing, "Stream is being destroyed",
			"%v: it was deleted, and the time within which that can be undone is over (--undelete-window)", err), true
	case errors.Is(err, catalog.ErrNameTaken):
		return problem(http.StatusConflict, ProblemNameTaken, "Name is taken",
			"%v; nothing was changed: delete that one first, if the deleted one is to have its name back", err), true
	case errors.Is(err, catalog.ErrNoStream):
		return problem(http.StatusNotFound, ProblemNoStream, "Stream not found",
			"%v; create it with POST /v1/streams (novad append --create does)", err), true
	case errors.Is(err, catalog.ErrNoStar):
		return problem(http.StatusNotFound, ProblemNoStar, "Star not found", "%v: none of that name ever served here", err), true
	case errors.Is(err, catalog.ErrStarLive):
		return problem(http.StatusConflict, ProblemStarLive, "Star is live",
			"%v; one that was killed counts as live until its session has ended", err), true
	case errors.As(err, &large) && large.Record >= 0:
		p := problem(http.StatusRequestEntityTooLarge, ProblemRecordTooLarge, "Record too large",
			"record %d of the request has %d bytes, a record may have %d at most; nothing of this request was appended: leave the record out or split it",
			large.Record, large.Bytes, large.Most)
		p.Record = &large.Record
		return p, true
	case errors.Is(err, star.ErrTooLarge):
		return problem(http.StatusRequestEntityTooLarge, ProblemBodyTooLarge, "Request too large",
			"%v; nothing of it was appended: send it in several requests", err), true
	case errors.As(err, &offset):
		return withNext(offset.Next, problem(http.StatusPreconditionFailed, ProblemWrongOffset, "Wrong expected offset",
			"the stream's next offset is %d, not %d; nothing was appended: read what came in between and decide again", offset.Next, offset.Expected)), true
	case errors.As(err, &gap):
		p := problem(http.StatusConflict, ProblemProducerGap, "Gap in the producer's sequence",
			"the producer's next sequence is %d, not %d; nothing was appended: send the appends that are missing first", gap.Next, gap.Seq)
		p.NextSequence = &gap.Next
		return p, true
	case errors.Is(err, star.ErrProducerFenced):
		return problem(http.StatusConflict, ProblemProducerFenced, "Producer fenced",
			"a newer epoch of this producer is known; another process took its identity over: stop this one"), true
	case errors.As(err, &trimmed):
		p := problem(http.StatusGone, ProblemTrimmed, "Trimmed",
			"offset %d is trimmed or expired, first readable offset is %d: read from there", trimmed.From, trimmed.First)
		p.FirstOffset = &trimmed.First
		return p, true
	case errors.As(err, &beyond):
		return beyondEnd(beyond.From, beyond.Next, "read from there or below"), true
	case errors.As(err, &past):
		return beyondEnd(past.Offset, past.Next, "nothing was trimmed, trim there or below"), true
	case errors.Is(err, catalog.ErrFutureFormat), errors.Is(err, format.ErrVersion):
		return problem(http.StatusInternalServerError, ProblemLaterVersion, "Written by a later version", "%v; nothing of it was returned", err), true
	case errors.Is(err, format.ErrCorrupt), errors.Is(err, catalog.ErrCorruptValue):
		p := problem(http.StatusInternalServerError, ProblemCorruptedObject, "Corrupted object",
			"%v; nothing of it was returned: restore it from a backup", err)
		if errors.As(err, &corrupt) { // else it is a metadata value, which the detail names
			p.Object = corrupt.Object
		}
		return p, true
	case errors.Is(err, ErrNoBackup):
		return problem(http.StatusNotImplemented, ProblemNoBackup, "Backups are made elsewhere", "%v", err), true
	case errors.Is(err, objstore.ErrNoRoom):
		return problem(http.StatusInsufficientStorage, ProblemStorageFull, "Storage is full",
			"%v; nothing was appended: delete or trim streams, or give the server more space, and try again (--disk-reserve is what it keeps)", err), true
	case errors.Is(err, star.ErrOverloaded):
		return problem(http.StatusServiceUnavailable, ProblemOverloaded, "Overloaded",
			"%v; nothing happened: try again after a pause", err), true
	case errors.Is(err, star.ErrNotReady), errors.Is(err, star.ErrShuttingDown):
		// Nothing happened, whatever the reason wraps.
		return unavailable(err), true
	case errors.Is(err, metastore.ErrUnknown):
		// Before what the last try met: it says nothing of the lost one before.
		return problem(http.StatusInternalServerError, ProblemOutcomeUnknown, "Outcome unknown",
			"whether the change was made is not known: look at the stream, then decide"), true
	case errors.Is(err, metastore.ErrUnavailable), errors.Is(err, objstore.ErrUnavailable), errors.Is(err, objstore.ErrThrottled),
		errors.Is(err, catalog.ErrReplaced), errors.Is(err, catalog.ErrRetired):
		return unavailable(err), true
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return problem(http.StatusServiceUnavailable, ProblemTimeout, "Timed out", "the request was not answered in time: try again"), true
	}
	return problem(http.StatusInternalServerError, ProblemInternal, "Internal error",
		"the server failed; its log says how"), false
}

// statusProblems gives a type to the errors that huma itself answers with.
func statusProblems(_ huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := &Problem{Type: ProblemBadRequest, Title: m.Title, Status: m.Status, Detail: m.Detail}
	switch m.Status {
	case http.StatusRequestEntityTooLarge:
		p.Type = ProblemBodyTooLarge
	case http.StatusUnsupportedMediaType:
		p.Type = ProblemMediaType
	case http.StatusNotAcceptable:
		p.Type = ProblemNotAcceptable
	case http.StatusRequestTimeout:
		p.Type = ProblemTimeout
	case http.StatusInternalServerError:
		p.Type = ProblemInternal
	}
	for i, e := range m.Errors {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		p.Detail += sep + e.Message
		if e.Location != "" {
			p.Detail += " (" + e.Location + ")"
		}
	}
	return p, nil
}
