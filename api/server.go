// Package api is Nova's HTTP interface, and its client.
//
// It has two halves. The inner one, package api/service, does the work and knows nothing of
// HTTP. This package is the outer one: routes, bodies, media types, problem documents
// (RFC 9457) and the OpenAPI document, which is served at /v1/openapi.json.
//
// Names of streams are percent-encoded in paths, as one segment: a/b c is a%2Fb%20c.
package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/verify"
)

// DefaultInFlightBytes bounds the bodies of appends that are held at once, and likewise the
// pages of reads.
const DefaultInFlightBytes = 256 << 20

// requestTimeout bounds what one request may take, once its body is read.
const requestTimeout = time.Minute

// Options of New. The zero value is usable.
type Options struct {
	// Logger gets failed requests, and all of them at level debug. It never gets
	// what is in a record. Nil: none.
	Logger *slog.Logger
	// InFlightBytes bounds the bodies of appends held at once, those of unknown length
	// counted at the most that they may have, and by itself the pages of reads, each
	// counted at the payload asked for. Beyond it requests are refused with 503. 0:
	// DefaultInFlightBytes.
	InFlightBytes int64
	// Version of the program, for the OpenAPI document.
	Version string
	// Verify checks all records and objects; nil: this server cannot.
	Verify func(context.Context, verify.Options) (verify.Report, error)
	// Backup writes a backup of the metadata, or fails before it wrote anything with what problemOf knows, as
	// ErrNoBackup; nil: this server cannot.
	Backup func(context.Context, io.Writer) error
	// Metrics, if not nil, is served at /metrics.
	Metrics http.Handler
	// Guard tells who may ask; nil: everybody who reaches the listener.
	Guard *Guard
	// LoopbackHosts: only requests that name a loopback host are answered, for a server that nothing guards and that
	// listens there.
	LoopbackHosts bool
	// Profiles, if not nil, is served beneath /debug/pprof/.
	Profiles http.Handler
	// AuditOnly: the node serves no data, and has none of the operations on streams.
	AuditOnly bool
	// Deal tells the seats of the ring; nil: this server cannot.
	Deal service.Deal
	// Drain begins to drain the node and waits for the end until the context ends; nil: this server cannot.
	Drain func(context.Context) (done bool, err error)
}

// server holds what the operations share.
type server struct {
	svc    *service.Service
	log    *slog.Logger
	bodies *clock.Semaphore // of appends
	pages  *clock.Semaphore // of reads
	verify func(context.Context, verify.Options) (verify.Report, error)
	checks *clock.Semaphore // one verify at a time
	copies *clock.Semaphore // one backup at a time
}

// New returns the handler of the whole interface.
func New(svc *service.Service, clk clock.Clock, opts Options) http.Handler {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.InFlightBytes == 0 {
		opts.InFlightBytes = DefaultInFlightBytes
	}
	if opts.Version == "" {
		opts.Version = "devel"
	}
	s := &server{
		svc: svc, log: opts.Logger,
		bodies: clock.NewSemaphore(clk, opts.InFlightBytes),
		pages:  clock.NewSemaphore(clk, opts.InFlightBytes),
		verify: opts.Verify,
		checks: clock.NewSemaphore(clk, 1),
		copies: clock.NewSemaphore(clk, 1),
	}

	config := huma.DefaultConfig("Nova", opts.Version)
	config.Info.Description = "A durable stream store: append records to named streams, read them back by offset."
	config.OpenAPIPath = "/v1/openapi"
	config.DocsPath, config.SchemasPath = "", ""
	config.CreateHooks = nil // they would add a link to a schema to every answer
	config.RejectUnknownQueryParameters = true
	config.Transformers = []huma.Transformer{statusProblems}
	mux := http.NewServeMux()
	if opts.Metrics != nil {
		mux.Handle("GET /metrics", opts.Metrics)
	}
	if opts.Profiles != nil {
		mux.Handle("GET /debug/pprof/", opts.Profiles)
	}
	h := humago.New(mux, config)
	s.registerHealth(h)
	if !opts.AuditOnly {
		s.registerStreams(h)
		s.registerAppend(h)
		s.registerRead(h)
	}
	s.registerOverview(h)
	if opts.Deal != nil {
		s.registerRing(h, opts.Deal)
	}
	s.registerStars(h)
	if opts.Drain != nil {
		s.registerDrain(h, clk, opts.Drain)
	}
	s.registerVerify(h)
	if opts.Backup != nil {
		s.registerBackup(h, clk, opts.Backup)
	}
	for _, own := range []string{"ErrorModel", "ErrorDetail"} {
		delete(h.OpenAPI().Components.Schemas.Map(), own) // huma's, answered by none: see statusProblems
	}
	all := sameOrigin(guarded(opts.Guard, wholeNames(problemsOnly(mux))))
	if opts.LoopbackHosts {
		all = loopbackHosts(all)
	}
	return s.logged(all)
}

// fail turns an error of the service into the answer, and logs what the client is not told.
func (s *server) fail(ctx context.Context, op string, err error) error {
	p, known := problemOf(err)
	switch {
	case !known:
		s.log.ErrorContext(ctx, "request failed", "operation", op, "error", err)
	case errors.Is(err, context.Canceled) && errors.Is(ctx.Err(), context.Canceled):
		// Clients that hang up are many where there is one, and nobody is told. What failed for another reason is told of all the same.
		s.log.DebugContext(ctx, "the client has gone", "operation", op, "problem", p.Type, "error", err)
	case p.Status >= http.StatusInternalServerError:
		s.log.WarnContext(ctx, "request failed", "operation", op, "problem", p.Type, "error", err)
	}
	return p
}

// operation returns an operation of the interface, with the statuses of the problems it may
// answer with. All answer 500 at need, those with parameters or a body 422.
func operation(h huma.API, id, method, path, summary, description string, problems ...int) huma.Operation {
	schema := h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Problem](), true, "Problem")
	op := huma.Operation{
		OperationID:  id,
		Method:       method,
		Path:         path,
		Summary:      summary,
		Description:  description,
		MaxBodyBytes: MaxBody,
		Responses:    map[string]*huma.Response{},
	}
	for _, status := range append(problems, http.StatusInternalServerError) {
		op.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: http.StatusText(status),
			Content:     map[string]*huma.MediaType{TypeProblem: {Schema: schema}},
		}
	}
	return op
}

func (s *server) registerHealth(h huma.API) {
	type status struct {
		Status string `json:"status" enum:"ok"`
	}
	type output struct{ Body status }
	ok := &output{Body: status{"ok"}}
	huma.Register(h, operation(h, "livez", http.MethodGet, "/livez", "Is the process alive", "Answers as long as the process does."),
		func(context.Context, *struct{}) (*output, error) { return ok, nil })
	huma.Register(h, operation(h, "readyz", http.MethodGet, "/readyz", "Does the node serve",
		"A star: its session is live and its chain minted. A node that audits only: its announcement on the ring is live.", http.StatusServiceUnavailable),
		func(ctx context.Context, _ *struct{}) (*output, error) {
			if err := s.svc.Ready(); err != nil {
				p, _ := problemOf(err)
				return nil, p
			}
			return ok, nil
		})
}
