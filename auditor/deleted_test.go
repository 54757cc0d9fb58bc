package auditor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
)

// A deleted stream goes with all that it has, settled before the deletion or after; its neighbours stay.
func TestADeletedStreamIsTornDown(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		ids, object := settledStreams(ctx, r, a, 2)
		_, err := r.cat.DeleteStream(ctx, ids[0])
		require.NoError(t, err)
		r.passes(ctx, a, 6, 5*time.Second)
		_, err = r.cat.ReadAnyStream(ctx, ids[0])
		require.ErrorIs(t, err, catalog.ErrNoStream)
		spans, _, err := r.cat.Spans(ctx, ids[0], 0, 10)
		require.NoError(t, err)
		require.Empty(t, spans)
		data, _ := r.read(ctx, ids[1], 0)
		require.Len(t, data, 2)
		require.Equal(t, []string{object}, r.objects("settled/"))

		_, err = r.cat.DeleteStream(ctx, ids[1])
		require.NoError(t, err)
		r.passes(ctx, a, 6, 5*time.Second)
		require.Empty(t, r.objects("settled/"), "the last stream takes the object with it")
		for _, q := range []catalog.Queue{catalog.Teardown, catalog.Retention, catalog.Reap, catalog.GC} {
			require.Empty(t, r.markers(q), q)
		}
		for _, prefix := range []string{"stream/", "head/", "mark/", "span/", "ref/", "pending/"} {
			keys, _, err := keysOf(ctx, r, prefix)
			require.NoError(t, err)
			require.Empty(t, keys)
		}
	})
}
