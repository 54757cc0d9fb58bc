// Package service is the inner half of the HTTP interface: what its operations do,
// as plain Go methods over a star and the catalogue, without HTTP, goroutines or
// wall clock. The simulator's clients call it directly.
package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
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
	Ready() error
	Chain() (chain catalog.ChainID, next uint64, ok bool)
}

var _ Star = (*star.Star)(nil)

// Service does what the operations of the interface do. It has no state of its own
// and is safe for concurrent use. Its errors are those of catalog and star.
type Service struct {
	star Star
	cat  *catalog.Catalog
}

// New returns the service of a star and its catalogue.
func New(st Star, cat *catalog.Catalog) *Service {
	return &Service{star: st, cat: cat}
}

// Ready returns nil while the star serves, else why it does not.
func (s *Service) Ready() error { return s.star.Ready() }

// StreamInfo describes a stream.
type StreamInfo struct {
	Name string
	ID   catalog.StreamID
	// Created is when the stream was made.
	Created time.Time
	// FirstOffset is the first readable offset, NextOffset that of the next record.
	FirstOffset, NextOffset uint64
	// Bytes is the payload of the readable records.
	Bytes uint64
}

// CreateStream makes a stream, or finds the one of that name; created tells which.
func (s *Service) CreateStream(ctx context.Context, name string) (info StreamInfo, created bool, err error) {
	v, created, err := s.cat.CreateStream(ctx, name, catalog.Policy{})
	if err != nil {
		return StreamInfo{}, false, err
	}
	return infoOf(v), created, nil
}

// Stream describes the stream of a name, as it is now.
func (s *Service) Stream(ctx context.Context, name string) (StreamInfo, error) {
	// A name may be deleted and given to a new stream between its look-up and the
	// read: then it is looked up once more.
	var err error
	for range 2 {
		var id catalog.StreamID
		if id, err = s.cat.FindStream(ctx, name); err != nil {
			return StreamInfo{}, err
		}
		var v catalog.StreamView
		if v, err = s.cat.ReadStream(ctx, id); err == nil {
			return infoOf(v), nil
		}
		if !errors.Is(err, catalog.ErrNoStream) {
			return StreamInfo{}, err
		}
	}
	return StreamInfo{}, fmt.Errorf("stream %q: %w", name, err)
}

func infoOf(v catalog.StreamView) StreamInfo {
	return StreamInfo{
		Name:        v.Stream.Name,
		ID:          v.ID,
		Created:     time.UnixMilli(v.Stream.Created).UTC(),
		FirstOffset: v.Mark.Watermark,
		NextOffset:  v.Head.Next,
		Bytes:       v.Head.Bytes - min(v.Mark.WatermarkBytes, v.Head.Bytes),
	}
}
