package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/auditor"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/star"
)

// bench measures in subfolders of dir.
type bench struct {
	ctx      context.Context
	dir      string
	duration time.Duration
	log      *slog.Logger
	nodes    int
}

// benchRecord is a record of 1 KiB that does not compress.
func benchRecord(task int) []byte {
	r := rand.New(rand.NewPCG(uint64(task), 1))
	b := make([]byte, 0, 1<<10)
	for len(b) < 1<<10 {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b
}

// fsyncs appends 1 KiB to a file and syncs it, again and again.
func (b *bench) fsyncs() (float64, error) {
	f, err := os.Create(filepath.Join(b.dir, "fsync"))
	if err != nil {
		return 0, err
	}
	record := benchRecord(0)
	v, err := rate(b.ctx, 1, b.duration, func(int, int) error {
		if _, err := f.Write(record); err != nil {
			return err
		}
		return f.Sync()
	})
	return v, errors.Join(err, f.Close())
}

// pebble commits 1 KiB a time to a Pebble of its own, each synced.
func (b *bench) pebble(tasks int) (v float64, err error) {
	db, err := pebble.Open(filepath.Join(b.dir, fmt.Sprintf("pebble-%d", tasks)), &pebble.Options{Logger: silent{}})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return rate(b.ctx, tasks, b.duration, func(task, i int) error {
		key := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(task)), uint64(i))
		return db.Set(key, benchRecord(task), pebble.Sync)
	})
}

// silent is Pebble's logger here. Fatalf must not return.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, a ...any) {
	fmt.Fprintf(os.Stderr, "novad: bench: Pebble: "+format+"\n", a...)
	os.Exit(exitFailure)
}

// with runs f on a fresh node that serves and does not audit yet, and whose auditor has no budgets.
func (b *bench) with(f func(*node) error) error {
	return b.withBudgets(func(*auditor.Options) {}, f)
}

func (b *bench) withBudgets(budgets func(*auditor.Options), f func(*node) error) error {
	b.nodes++
	audit := auditor.Options{IdleInterval: 10 * time.Millisecond, Codec: format.Zstd()}
	budgets(&audit)
	timing := catalog.DefaultTiming(true)
	timing.SettleAgeCap = time.Millisecond
	n, err := openNode(b.ctx, nodeConfig{
		Dir:     filepath.Join(b.dir, fmt.Sprintf("node-%d", b.nodes)),
		Timing:  timing,
		Star:    star.Options{Name: "bench"},
		Auditor: audit,
		Audit:   true,
		Serve:   true,
		Logger:  b.log,
	})
	if err != nil {
		return err
	}
	n.startStar()
	if err = n.ready(b.ctx); err == nil {
		err = f(n)
	}
	return errors.Join(err, n.stop())
}

func benchStream(task int) string { return fmt.Sprintf("bench-%d", task) }

func createStreams(ctx context.Context, n *node, count int) error {
	for task := range count {
		if _, _, err := n.service().CreateStream(ctx, benchStream(task), nil); err != nil {
			return err
		}
	}
	return nil
}

// appends appends 1 KiB a time to a star in this process.
func (b *bench) appends(tasks int) (v float64, err error) {
	err = b.with(func(n *node) error {
		if err := createStreams(b.ctx, n, tasks); err != nil {
			return err
		}
		svc := n.service()
		v, err = rate(b.ctx, tasks, b.duration, func(task, _ int) error {
			_, err := svc.Append(b.ctx, service.AppendRequest{Stream: benchStream(task), Records: [][]byte{benchRecord(task)}})
			return err
		})
		return err
	})
	return v, err
}

// appendsHTTP is appends through the interface, over loopback.
func (b *bench) appendsHTTP(tasks int) (v float64, err error) {
	err = b.with(func(n *node) error {
		if err := createStreams(b.ctx, n, tasks); err != nil {
			return err
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		srv := newHTTPServer(api.New(n.service(), clock.NewReal(), api.Options{Logger: n.log}), n.log, defaultHTTPLimits())
		served := make(chan error, 1)
		go func() { served <- srv.Serve(listener) }()
		client, err := api.NewClient("http://"+listener.Addr().String(), api.ClientOptions{})
		if err == nil {
			defer client.Close()
			v, err = rate(b.ctx, tasks, b.duration, func(task, _ int) error {
				_, err := client.Append(b.ctx, benchStream(task), [][]byte{benchRecord(task)}, api.AppendOptions{})
				return err
			})
		}
		err = errors.Join(err, srv.Close())
		<-served
		return err
	})
	return v, err
}

// copyBytes copies a file of so many bytes and syncs the copy. The source is in the page
// cache, as are the slots that settle reads.
func (b *bench) copyBytes(volume int64) (float64, error) {
	src, err := os.Create(filepath.Join(b.dir, "source"))
	if err != nil {
		return 0, err
	}
	defer src.Close()
	for written := int64(0); written < volume; {
		n, err := src.Write(benchRecord(int(written >> 10)))
		if err != nil {
			return 0, err
		}
		written += int64(n)
	}
	if err := src.Sync(); err != nil {
		return 0, err
	}
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	began := time.Now()
	dst, err := os.Create(filepath.Join(b.dir, "copy"))
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(dst, src)
	err = errors.Join(err, dst.Sync(), dst.Close())
	return float64(volume) / time.Since(began).Seconds(), err
}

const (
	settleStreams = 4
	settleBatch   = 256 // records of 1 KiB an append
	settlePoll    = 2 * time.Millisecond
)

// settle appends so many bytes, then lets the auditor loose and waits until all are rewritten. It
// does so twice on one node and measures the second time: memory that a process touches
// for the first time costs more than all the rest on some machines, and no node is new for long.
func (b *bench) settle(volume int64) (v float64, err error) {
	err = b.with(func(n *node) error {
		if err := createStreams(b.ctx, n, settleStreams); err != nil {
			return err
		}
		for range 2 {
			if v, err = b.settleOnce(n, volume); err != nil {
				return err
			}
		}
		return nil
	})
	return v, err
}

func (b *bench) settleOnce(n *node, volume int64) (float64, error) {
	appended, err := fillBacklog(b.ctx, n, volume)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	n.startAuditor()
	defer func() {
		n.stopAuditor()
		<-n.auditorDone
	}()
	for {
		done, err := settled(b.ctx, n)
		if err != nil {
			return 0, err
		}
		if done {
			return float64(appended) / time.Since(began).Seconds(), nil
		}
		if err := clock.NewReal().Sleep(b.ctx, settlePoll); err != nil {
			return 0, err
		}
	}
}
