package verify

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

// read reads a range of an object.
func (r *run) read(ctx context.Context, key string, off, n int64) (body []byte, err error) {
	err = r.again(ctx, func() (err error) { body, err = r.bucket.Get(ctx, key, off, n); return err })
	return body, err
}

// hold memory for n bytes of objects until the function returned is called; more than all there is counts as all.
func (r *run) hogging(ctx context.Context, n int64) (release func(), err error) {
	n = min(max(n, 1), memoryMost)
	if err := r.memory.Acquire(ctx, n); err != nil {
		return nil, err
	}
	return func() { r.memory.Release(n) }, nil
}

// whole reads an object and verifies all of it, and so its size. A nil claim and a nil error: it is sound. Its claims are
// of the object alone; the caller says when an object that is missing may be.
func (r *run) whole(ctx context.Context, key string) (_ format.Footer, size int64, _ *claim, _ error) {
	var info objstore.Info
	err := r.again(ctx, func() (err error) { info, err = r.bucket.Stat(ctx, key); return err })
	if err == nil {
		var release func()
		if release, err = r.hogging(ctx, info.Size); err != nil {
			return format.Footer{}, 0, nil, err
		}
		defer release()
		var body []byte
		if body, err = r.read(ctx, key, 0, -1); err == nil {
			f, perr := format.Parse(body)
			if perr == nil {
				r.count(func(rep *Report) { rep.Objects++ })
				return f, int64(len(body)), nil, nil
			}
			return f, 0, unsound(key, perr), nil
		}
	}
	if errors.Is(err, objstore.ErrNotFound) {
		return format.Footer{}, 0, amiss(ObjectMissing, key, "the object does not exist"), nil
	}
	return format.Footer{}, 0, nil, err
}

// unsound is the claim that an object's bytes are not what was written, or of a later version.
func unsound(key string, err error) *claim {
	if errors.Is(err, format.ErrVersion) {
		return amiss(ObjectMismatch, key, "the object is intact, but of a version that this program does not know: %v", err)
	}
	return amiss(ObjectCorrupt, key, "%v", err)
}

// footer reads an object's header and footer, and its size.
func (r *run) footer(ctx context.Context, key string) (f format.Footer, size int64, c *claim, err error) {
	var info objstore.Info
	err = r.again(ctx, func() (err error) { info, err = r.bucket.Stat(ctx, key); return err })
	if err == nil {
		for n := min(info.Size, format.TailLength); ; {
			var tail []byte
			if tail, err = r.read(ctx, key, info.Size-n, n); err != nil {
				break
			}
			var need int64
			f, need, err = format.ParseTail(info.Size, tail)
			if err != nil {
				return f, info.Size, unsound(key, err), nil
			}
			if need == 0 {
				return f, info.Size, nil, nil
			}
			n = need
		}
	}
	if errors.Is(err, objstore.ErrNotFound) {
		return f, 0, amiss(ObjectMissing, key, "the object does not exist"), nil
	}
	return f, 0, nil, err
}

// kindOf says what an object of a key must be.
func kindOf(key string) (kind format.Kind, known bool) {
	switch {
	case strings.HasPrefix(key, "settled/"):
		return format.KindSettled, true
	case strings.HasPrefix(key, "bundle/"):
		return format.KindBundle, true
	}
	return 0, false
}

// announced looks at an object that an intent announces, where it exists already: an object is visible whole
// or not at all, so that damage is damage whether its publish goes on or not. The bytes are read again
// by whoever finds a span in it.
func (r *run) announced(ctx context.Context, object string) error {
	look := func(ctx context.Context) (*claim, error) {
		_, _, c, err := r.footer(ctx, object)
		if c != nil && c.Kind == ObjectMissing {
			c = nil
		}
		return c, err
	}
	c, err := look(ctx)
	if err != nil || c == nil {
		return err
	}
	return r.confirm(ctx, look)
}

// refs checks the refs object by object: each has its span, which names the object, and the object exists, of the kind and
// size that its key and refs say.
func (r *run) refs(ctx context.Context) error {
	var last Recorded
	s := refStatement()
	tasks := r.abreast()
	err := r.walk(ctx, metastore.Prefix(catalog.RefsPrefix), func(recs []metastore.Record) error {
		r.count(func(rep *Report) { rep.Refs += len(recs) })
		if err := r.hold(ctx, recs, s); err != nil {
			return err
		}
		for _, rec := range recs {
			object, _, _, err := catalog.ParseRefKey(rec.Key)
			ref, derr := catalog.DecodeRef(rec.Value)
			if err != nil || derr != nil || objstore.CheckKey(object) != nil {
				continue // reported
			}
			now := Recorded{object, int64(ref.ObjectSize)}
			if now == last {
				continue // looked at
			}
			last = now
			r.recorded(now.Key, now.Size)
			key := rec.Key
			err = tasks.Go(ctx, "verify/object", func(ctx context.Context) error {
				c, err := r.evaluateRef(ctx, key)
				if err == nil && c == nil {
					r.count(func(rep *Report) { rep.Objects++ })
				}
				if err != nil || c == nil {
					return err
				}
				return r.confirm(ctx, func(ctx context.Context) (*claim, error) { return r.evaluateRef(ctx, key) })
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, tasks.Wait(context.WithoutCancel(ctx)))
}

// refStatement: at one revision a ref has its span, which names the object, and says its length.
func refStatement() statement {
	return statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			object, id, last, err := catalog.ParseRefKey(rec.Key)
			if err == nil {
				err = objstore.CheckKey(object)
			}
			if err == nil {
				_, err = catalog.DecodeRef(rec.Value)
			}
			if err != nil {
				return nil, bad(rec, err)
			}
			return []string{catalog.SpanKey(id, last)}, nil
		},
		judge: func(rec metastore.Record, named []metastore.Record) *claim {
			object, _, _, _ := catalog.ParseRefKey(rec.Key)
			if !named[0].Exists() {
				return amiss(RefStray, rec.Key, "the span that it stands for does not exist: %s", named[0].Key)
			}
			span, err := catalog.DecodeSpan(named[0].Value)
			if err == nil && span.Object != object {
				return amiss(RefStray, rec.Key, "the span %s names %s, another object", named[0].Key, span.Object)
			}
			if ref, _ := catalog.DecodeRef(rec.Value); err == nil && ref.Bytes != uint64(span.Length) {
				return amiss(RefMismatch, rec.Key, "it counts %d bytes, its span has %d", ref.Bytes, span.Length)
			}
			return nil
		},
	}
}

// evaluateRef looks at a ref's object. Held still by the ref: while it stands the object must exist, and
// objects are never made again.
func (r *run) evaluateRef(ctx context.Context, key string) (*claim, error) {
	recs, err := r.get(ctx, key)
	if err != nil || !recs[0].Exists() {
		return nil, err
	}
	object, _, _, err := catalog.ParseRefKey(key)
	if err != nil {
		return nil, nil // reported
	}
	f, size, c, err := r.footer(ctx, object)
	if err != nil {
		return nil, err
	}
	ref, err := catalog.DecodeRef(recs[0].Value)
	want, known := kindOf(object)
	switch {
	case c != nil:
	case known && f.Kind != want:
		c = amiss(ObjectMismatch, object, "by its key it is a %v, by its footer a %v", want, f.Kind)
	case err == nil && ref.ObjectSize != uint64(size):
		c = amiss(RefMismatch, key, "it says that the object has %d bytes; it has %d", ref.ObjectSize, size)
	default:
		return nil, nil
	}
	return c.on(recs[0].Version), nil
}

// list compares the bucket's listing with what the records name. It is the operator's own listing, of a
// bucket that nobody else has open; it only reports.
func (r *run) list(ctx context.Context) error {
	const page = 1000
	for after := ""; ; {
		var infos []objstore.Info
		err := r.again(ctx, func() (err error) { infos, err = r.bucket.List(ctx, "", after, page); return err })
		if err != nil {
			return err
		}
		for _, info := range infos {
			r.count(func(rep *Report) { rep.Listed++; rep.ListedBytes += uint64(info.Size) })
			if strings.HasPrefix(info.Key, "probe/") {
				continue // left by a start-up, overwritten by the next
			}
			why, err := r.unnamed(ctx, info.Key)
			if err != nil {
				return err
			}
			if why == "" {
				continue
			}
			err = r.confirm(ctx, func(ctx context.Context) (*claim, error) {
				why, err := r.unnamed(ctx, info.Key)
				if err != nil || why == "" {
					return nil, err
				}
				return amiss(ObjectUnrecorded, info.Key, "%s (%d bytes)", why, info.Size), nil
			})
			if err != nil {
				return err
			}
		}
		if len(infos) < page {
			return r.strays(ctx)
		}
		after = infos[len(infos)-1].Key
	}
}

// strays reports what a listing does not show. Keys of findings are text: what is none is quoted.
func (r *run) strays(ctx context.Context) error {
	if r.o.Strays == nil {
		return nil
	}
	found, err := r.o.Strays(ctx)
	if err != nil {
		return err
	}
	for _, s := range found {
		err := r.confirm(ctx, func(context.Context) (*claim, error) {
			path := s.Path
			if !utf8.ValidString(path) {
				path = strconv.QuoteToASCII(path)
			}
			return amiss(BucketStray, path, "%s", s.Why), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// unnamed says why no record names an object; "": one does.
func (r *run) unnamed(ctx context.Context, key string) (string, error) {
	if id, slot, err := catalog.ParseSlotKey(key); err == nil {
		recs, err := r.get(ctx, catalog.ChainKey(id), catalog.TrimKey(id))
		if err != nil {
			return "", err
		}
		c, e1 := catalog.DecodeChain(recs[0].Value)
		t, e2 := catalog.DecodeTrim(recs[1].Value)
		switch {
		case !recs[0].Exists():
			return fmt.Sprintf("a slot of chain %s, which is retired", id), nil
		case e1 != nil || e2 != nil:
			return "", nil // nothing can be said of it
		case slot < t.Trimmed:
			return fmt.Sprintf("slot %d of chain %s, below the trimmed cursor %d", slot, id, t.Trimmed), nil
		case c.State == catalog.ChainSealed && slot >= c.WindowEnd:
			return fmt.Sprintf("slot %d of chain %s, which was sealed up to slot %d", slot, id, c.WindowEnd), nil
		}
		return "", nil // whether a marker watches it was looked at with its chain
	}
	recs, err := r.peek(ctx, metastore.Prefix(catalog.RefPrefix(key)), exactly(catalog.IntentKey(key)), exactly(catalog.GCKey(key)))
	if err != nil {
		return "", err
	}
	for _, rec := range recs {
		if rec.Exists() {
			return "", nil
		}
	}
	if r.reaped.has(key) {
		return "", nil
	}
	if r.reaped.full {
		found, err := r.standing(ctx, catalog.Reap, strings.ReplaceAll(key, "/", "!"))
		if err != nil || found {
			return "", err
		}
	}
	return "no ref, no intent, no reap-check and no gc marker names it", nil
}

func exactly(key string) metastore.Range { return metastore.Range{Start: key, End: key + "\x00"} }

func (r *run) peek(ctx context.Context, rs ...metastore.Range) (recs []metastore.Record, err error) {
	err = r.again(ctx, func() (err error) { recs, err = r.store.Peek(ctx, rs); return err })
	return recs, err
}

// standing tells whether a marker of a subject stands in a time-ordered queue, by a walk of its shard.
//
// A marker that is re-armed moves to a later time, and so to a later key: a walk in key order meets it
// before or after its move, if not at both places.
func (r *run) standing(ctx context.Context, q catalog.Queue, subject string) (found bool, err error) {
	err = r.walk(ctx, catalog.ShardRange(q, catalog.Shard(subject)), func(recs []metastore.Record) error {
		for _, rec := range recs {
			if d, err := catalog.ParseDue(rec.Key); err == nil && d.Subject == subject {
				found = true
				return errStop
			}
		}
		return nil
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return found, err
}

// errStop ends a walk.
var errStop = errors.New("stop")
