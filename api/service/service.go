// Package service is the inner half of the HTTP interface: what its operations do,
// as plain Go methods over a star and the catalogue, without HTTP, goroutines or
// wall clock. The simulator has an operator who looks and reads through it.
package service

import (
	"context"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/star"
)

// Bounds of one operation.
const (
	// MaxRecordBytes is the largest record.
	MaxRecordBytes = format.MaxRecordBytes
	// MaxAppendBytes bounds the payload of one append.
	MaxAppendBytes = 16 << 20
	// MaxAppendRecords bounds the records of one append.
	MaxAppendRecords = 65536
	// MaxReadRecords bounds the records of one read, MaxReadBytes their payload;
	// a first record larger than what was asked for is returned alone.
	MaxReadRecords = 10000
	MaxReadBytes   = 16 << 20
	// DefaultReadRecords and DefaultReadBytes bound a read that does not say.
	DefaultReadRecords = 1000
	DefaultReadBytes   = 4 << 20

	// maxDueCounted bounds how many markers of one queue are counted.
	maxDueCounted = 10000
)

// ErrBadRequest: the request contradicts itself or is out of bounds.
var ErrBadRequest = star.ErrBadRequest

// Star is what the service needs of a star.
type Star interface {
	Append(context.Context, star.AppendRequest) (star.AppendResult, error)
	Read(context.Context, star.ReadRequest) (star.ReadResult, error)
	Follow(context.Context, catalog.StreamID) (*star.Follower, error)
	FirstOffset(context.Context, catalog.StreamView) (uint64, error)
	Ready() error
	Chain() (chain catalog.ChainID, next uint64, ok bool)
}

var _ Star = (*star.Star)(nil)

// Service does what the operations of the interface do. It has no state of its own
// and is safe for concurrent use. Its errors are those of catalog and star.
type Service struct {
	star Star
	cat  *catalog.Catalog
	clk  clock.Clock
}

// New returns the service of a star and its catalogue.
func New(st Star, cat *catalog.Catalog, clk clock.Clock) *Service {
	return &Service{star: st, cat: cat, clk: clk}
}

// Ready returns nil while the star serves, else why it does not.
func (s *Service) Ready() error { return s.star.Ready() }
