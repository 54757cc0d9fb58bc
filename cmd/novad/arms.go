package main

import (
	"context"

	"github.com/nova-store/nova/metastore"
)

// armWatch is a store that tells which keys its commits put, so that the auditor of this process
// looks there: it walks each queue from where it last left something standing.
type armWatch struct {
	metastore.Store
	put func(key string)
}

func (w *armWatch) Commit(ctx context.Context, b metastore.Batch) (metastore.Version, error) {
	v, err := w.Store.Commit(ctx, b)
	for i := range b.Ops {
		// Also where the outcome is not known: a look too many costs nothing.
		if !b.Ops[i].Delete {
			w.put(b.Ops[i].Key)
		}
	}
	return v, err
}
