package auditor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/sim"
)

// Whether an object is alive is two point look-ups, its intent and its first ref, however many there are of anything.
func TestLivenessIsAPointLookup(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	var asked []string
	r.w.OnStep(func(s *sim.StepInfo) {
		if s.TaskName == "auditor/reap" && !s.Write {
			n := s.Limit
			if s.Op == sim.OpGet {
				n = len(s.Keys)
			}
			asked = append(asked, fmt.Sprintf("%v of %s, %d at most", s.Op, strings.Split(s.Keys[0], "/")[0], n))
		}
	})
	r.do(func(ctx context.Context) {
		ids, object := settledStreams(ctx, r, a, 1)
		r.kill(ctx, ids[0])
		for i := range 50 {
			other := catalog.SettledKey(fmt.Sprintf("%sX%d", object[len("settled/"):], i))
			_, err := r.cat.Store().Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Put(catalog.RefKey(other, ids[0], 1), []byte{1, 1, 1})}})
			require.NoError(t, err)
		}
		r.passes(ctx, a, 2, 3*time.Second)
		require.Len(t, r.did(ObjectReaped), 1)
		require.Equal(t, []string{"get of due, 1 at most", "scan of ref, 1 at most"}, asked[:2])
	})
}
