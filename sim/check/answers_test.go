package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim/check"
)

func TestAnswers(t *testing.T) {
	bytes, age := catalog.Policy{MaxBytes: 1000}, catalog.Policy{MaxAgeMS: 1}
	expect(t, []planted{
		{"a trim that was not done", func(x *fixture) {
			x.c.Trimmed(x.c.Trimming(x.id, 3))
		}, check.Lost, "a trim up to 3 was acknowledged, and the watermark is 0"},
		{"a trim that was refused and done", func(x *fixture) {
			asked := x.c.Trimming(x.id, 3)
			x.remark(3)
			x.c.TrimRefused(asked)
		}, check.Lost, "a trim up to 3 was refused, and the watermark is there"},
		{"a trim that is done after it was refused", func(x *fixture) {
			x.c.TrimRefused(x.c.Trimming(x.id, 3))
			x.remark(3)
		}, check.Lost, "the watermark moved from 0 to 3; clients trimmed up to 0"},
		{"a policy that was not set", func(x *fixture) {
			x.c.PolicySet(x.c.AskPolicy(x.id, bytes))
		}, check.Lost, "was acknowledged, and the stream has not had it"},
		{"a policy that was refused and set", func(x *fixture) {
			asked := x.c.AskPolicy(x.id, bytes)
			_, err := x.cat.SetPolicy(x.ctx, x.id, bytes)
			require.NoError(x.t, err)
			x.c.PolicyRefused(asked)
		}, check.Lost, "was refused, and the stream has had it"},
		{"a policy that comes after it was refused", func(x *fixture) {
			x.c.PolicyRefused(x.c.AskPolicy(x.id, bytes))
			_, err := x.cat.SetPolicy(x.ctx, x.id, bytes)
			require.NoError(x.t, err)
		}, check.Lost, "for which nobody asks"},
		{"a policy that nobody asks for", func(x *fixture) {
			_, err := x.cat.SetPolicy(x.ctx, x.id, bytes)
			require.NoError(x.t, err)
		}, check.Lost, "for which nobody asks"},
		{"a policy that comes back", func(x *fixture) {
			x.policy(bytes)
			x.policy(catalog.Policy{})
			_, err := x.cat.SetPolicy(x.ctx, x.id, bytes)
			require.NoError(x.t, err)
		}, check.Lost, "for which nobody asks"},
		{"a stream that the name does not lead to", func(x *fixture) {
			x.c.Created(x.c.AskCreate("s", bytes), x.other, false)
		}, check.Lost, "to which the name has not led since"},
		{"a stream that was made with another policy", func(x *fixture) {
			asked := x.c.AskCreate("new", age)
			v, made, err := x.cat.CreateStream(x.ctx, "new", bytes)
			require.NoError(x.t, err)
			x.c.Created(asked, v.ID, made)
		}, check.Lost, "it was made with the policy"},
	})
}

// What is done at any moment between the call and the answer is done, and what is not answered may be done later.
func TestAnswersThatHold(t *testing.T) {
	bytes := catalog.Policy{MaxBytes: 1000}
	require.Nil(t, plant(t, func(x *fixture) {
		first, late := x.c.AskPolicy(x.id, bytes), x.c.AskPolicy(x.id, catalog.Policy{MaxBytes: 2000})
		x.policy(bytes)
		x.policy(catalog.Policy{})
		x.c.PolicySet(first)
		_, err := x.cat.SetPolicy(x.ctx, x.id, catalog.Policy{MaxBytes: 2000})
		require.NoError(x.t, err)
		x.c.PolicySet(late)
		short, trim, twin := x.c.Trimming(x.id, 1), x.c.Trimming(x.id, 2), x.c.Trimming(x.id, 2)
		_, err = x.cat.TrimStream(x.ctx, x.id, 2)
		require.NoError(x.t, err)
		x.c.Trimmed(short)
		x.c.Trimmed(trim)
		x.c.TrimRefused(twin)
		asked := x.c.AskCreate("s", bytes)
		x.c.Created(asked, x.id, false)
	}))
}
