// Package nova_test holds the tests of the whole module.
package nova_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"
)

const module = "github.com/nova-store/nova"

// deterministic are the packages that run unchanged in the simulator, whose runs are pure
// functions of their seeds: all time, chance and concurrency of theirs is the clock's.
func deterministic() []string { return []string{"catalog", "star", "auditor", "api/service", "verify"} }

// startsGoroutines tells which other packages may: the clock, the commands, and the insides of
// stores and buckets. The HTTP server's own are net/http's.
func startsGoroutines(pkg string) bool {
	for _, p := range []string{"clock", "cmd", "metastore", "objstore"} {
		if pkg == p || strings.HasPrefix(pkg, p+"/") {
			return true
		}
	}
	return false
}

// exception lets one function break one rule, for a reason. One that is not needed any more fails
// the test.
type exception struct {
	pkg, function string
	rule          rule
	why           string
}

func exceptions() []exception {
	return []exception{
		{"verify", "(*run).list", ruleBucketList, "the operator's report of a stopped data directory: docs/adr/0017-verify-lists.md"},
		{"auditor", "(*bucket).list", ruleBucketList, "the sweep of what a retired star left: auditor/decommission.go"},
		{"cmd/novad", "refuseUsedBucket", ruleBucketList, "one look when metadata is made: docs/adr/0023-one-look-at-a-used-bucket.md"},
		{"auditor", "(*backoff).failed", ruleMapRange, "it deletes every entry that is too old: in whatever order, the same are left"},
	}
}

// loadPackages type-checks packages of this module, without their tests.
func loadPackages(t *testing.T, patterns ...string) []*packages.Package {
	t.Helper()
	pkgs, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedSyntax |
			packages.NeedTypes | packages.NeedTypesInfo | packages.NeedExportFile,
	}, patterns...)
	require.NoError(t, err)
	for _, p := range pkgs {
		for _, e := range p.Errors {
			t.Fatalf("%s: %v", p.PkgPath, e)
		}
	}
	return pkgs
}

// rulesFor says what a package may not do.
func rulesFor(pkg string) []rule {
	if slices.Contains(deterministic(), pkg) {
		rules := allRules()
		if pkg == "auditor" { // it alone deletes objects
			rules = slices.DeleteFunc(rules, func(r rule) bool { return r == ruleBucketDelete })
		}
		return rules
	}
	var rules []rule
	if !startsGoroutines(pkg) {
		rules = append(rules, ruleGo)
	}
	// Buckets, their suite and their start-up probe are the bucket, and so is the wrapper that counts its
	// requests; the simulator makes one and looks into it.
	if pkg != "metrics" && pkg != "sim" && !strings.HasPrefix(pkg, "sim/") && !strings.HasPrefix(pkg, "objstore") {
		rules = append(rules, ruleBucketDelete, ruleBucketList)
	}
	return rules
}

// The packages that the simulator runs do nothing behind the clock's back; only the
// auditor deletes; goroutines are started where they belong.
func TestForbidden(t *testing.T) {
	used := map[exception]bool{}
	seen := map[string]bool{}
	for _, p := range loadPackages(t, "./...") {
		pkg := strings.TrimPrefix(strings.TrimPrefix(p.PkgPath, module), "/")
		seen[pkg] = true
		for _, f := range check(p.Fset, p.Syntax, p.TypesInfo, rulesFor(pkg)...) {
			i := slices.IndexFunc(exceptions(), func(e exception) bool { return e.pkg == pkg && e.function == f.in && e.rule == f.rule })
			if i < 0 {
				f.pos.Filename = filepath.Base(f.pos.Filename)
				t.Errorf("%s/%v", pkg, f)
				continue
			}
			used[exceptions()[i]] = true
		}
	}
	for _, e := range exceptions() {
		require.NotEmpty(t, e.why)
		require.True(t, used[e], "an exception that nothing needs: %+v", e)
	}
	for _, pkg := range deterministic() {
		require.True(t, seen[pkg], "package %s was not looked at", pkg)
	}
}

// snippets are what each rule must find, and what it must leave alone: a checker that
// finds nothing would let everything pass.
func snippets() []struct {
	rule  rule
	bad   []string
	good  []string
	using string
} {
	return []struct {
		rule  rule
		bad   []string
		good  []string
		using string
	}{
		{rule: ruleGo, bad: []string{"go f()", "func() { go func() {}() }()", "for { go f() }"}, good: []string{"f()", "defer f()"}},
		{rule: ruleSelect, bad: []string{"select {}", "select { default: }"}, good: []string{"switch {}"}},
		{rule: ruleChannel,
			bad: []string{"var c chan int; _ = c", "_ = make(chan int)", "type q <-chan int", "c() <- 1", "<-c()", "x := <-c(); _ = x",
				"for range c() { }", "close(c())", "func(chan<- int) {}(nil)"},
			good: []string{"_ = 1 < -1", "close := func(int) {}; close(1)"}},
		{rule: ruleSync, using: `"sync"; s "sync"`,
			bad: []string{"var w sync.WaitGroup; w.Wait()", "var o sync.Once; o.Do(f)", "sync.NewCond(nil)", "var m sync.RWMutex; m.RLock()",
				"var m sync.Map; _ = &m", "var p sync.Pool; _ = &p", "_ = sync.OnceFunc(f)", "type t struct { s.WaitGroup }"},
			good: []string{"var m sync.Mutex; m.Lock(); f(); m.Unlock()"}},
		{rule: ruleLock, using: `"sync"; "context"`,
			bad: []string{
				"var m sync.Mutex; m.Lock(); wait(nil); m.Unlock()",
				"var m sync.Mutex; m.Lock(); defer m.Unlock(); f(); wait(nil)",
				"var m sync.Mutex; m.Lock(); if x() { wait(nil) }; m.Unlock()",
				"var m sync.Mutex; m.Lock(); func() { wait(nil) }(); m.Unlock()",
				"var s struct{ sync.Mutex }; s.Lock(); wait(nil); s.Unlock()",
				"var a, b sync.Mutex; a.Lock(); b.Lock(); b.Unlock(); wait(nil); a.Unlock()",
				"var m sync.Mutex; switch { case x(): m.Lock(); wait(nil); m.Unlock() }",
				"var m sync.Mutex; var g func(context.Context); m.Lock(); g(nil); m.Unlock()",
			},
			good: []string{
				"var m sync.Mutex; m.Lock(); f(); m.Unlock(); wait(nil)",
				"var m sync.Mutex; wait(nil); m.Lock(); defer m.Unlock(); f()",
				"var m sync.Mutex; m.Lock(); if x() { m.Unlock(); wait(nil); return }; m.Unlock()",
				"var m struct{ l }; m.Lock(); wait(nil); m.Unlock()",
			}},
		{rule: ruleTime, using: `"time"; t "time"; . "time"`,
			bad: []string{"time.Now()", "t.Sleep(1)", "<-time.After(1)", "time.NewTimer(1)", "time.Since(time.Time{})", "time.Until(time.Time{})",
				"time.AfterFunc(1, f)", "time.NewTicker(1)", "time.Tick(1)", "now := time.Now; now()", "t.Now()", "Now()", "var x time.Timer; _ = &x"},
			good: []string{"_ = time.Unix(1, 2)", "_ = time.Time{}.Add(time.Second)", "_ = time.Time{}.After(time.Time{})"}},
		{rule: ruleContext, using: `"context"; c2 "context"`,
			bad: []string{"context.WithTimeout(nil, 1)", "context.WithCancel(nil)", "context.AfterFunc(nil, f)", "c2.WithCancelCause(nil)",
				"x := context.WithDeadline; _ = x"},
			good: []string{"_ = context.WithoutCancel(nil)", "_ = context.WithValue(nil, 1, 2)"}},
		{rule: ruleRand, using: `"math/rand"; v2 "math/rand/v2"; cr "crypto/rand"`,
			bad:  []string{"rand.Int()", "rand.Shuffle(1, nil)", "v2.IntN(3)", "v2.N(3)", "cr.Read(nil)", "_ = cr.Reader", "cr.Text()", "g := v2.Uint64; g()"},
			good: []string{"_ = v2.New(v2.NewPCG(1, 2)).IntN(3)"}},
		{rule: ruleRecover, bad: []string{"recover()", "defer func() { _ = recover() }()"}, good: []string{"recover := func() {}; recover()"}},
		{rule: ruleMapRange, using: `"maps"; "slices"`,
			bad: []string{"for k := range mp() { _ = k }", "for range mp() {}", "type m map[int]int; for range (m{}) {}",
				"for k := range maps.Keys(mp()) { _ = k }", "_ = slices.Collect(maps.Values(mp()))", "maps.All(mp())"},
			good: []string{"for range 3 {}", "for range []int{} {}", "for range slices.Sorted(maps.Keys(mp())) {}",
				"for range slices.SortedFunc(maps.Values(mp()), nil) {}", "_ = maps.Clone(mp())", "clear(mp())"}},
		{rule: ruleBucketDelete, using: `"` + module + `/objstore"; "context"`,
			bad: []string{"var b objstore.Bucket; b.Delete(nil, nil)", "var b struct{ objstore.Bucket }; b.Delete(nil, nil)",
				"var b interface { objstore.Bucket; X() }; b.Delete(nil, nil)"},
			good: []string{"var b objstore.Bucket; b.Get(nil, \"\", 0, 0)", "var b interface { Delete(context.Context, []string) []error }; b.Delete(nil, nil)"}},
		{rule: ruleBucketList, using: `"` + module + `/objstore"`,
			bad:  []string{"var b objstore.Bucket; b.List(nil, \"\", \"\", 1)"},
			good: []string{"var b objstore.Bucket; b.Delete(nil, nil)"}},
	}
}

// importer hands out packages that were loaded.
type importer map[string]*types.Package

func (im importer) Import(path string) (*types.Package, error) {
	if p, ok := im[path]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("package %s was not loaded", path)
}

func TestForbiddenFindsEachBreach(t *testing.T) {
	im := importer{}
	for _, p := range loadPackages(t, "context", "crypto/rand", "maps", "math/rand", "math/rand/v2", "slices", "sync", "time", module+"/objstore") {
		im[p.PkgPath] = p.Types
	}
	tested := map[rule]bool{}
	run := func(using, body string) []finding {
		var imports strings.Builder
		for _, i := range strings.Split(using, ";") {
			if i = strings.TrimSpace(i); i != "" {
				fmt.Fprintf(&imports, "import %s\n", i)
			}
		}
		src := "package p\nimport ctx_ \"context\"\n" + imports.String() + `
			type l struct{}
			func (l) Lock() {}
			func (l) Unlock() {}
			func f() {}
			func x() bool { return false }
			func wait(ctx_.Context) {}
			func mp() map[int]int { return nil }
			func c() (c ` + "chan int" + `) { return }
			func snippet() { ` + body + "}\n"
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "snippet.go", src, 0)
		require.NoError(t, err, body)
		info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
			Types: map[ast.Expr]types.TypeAndValue{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
		// A snippet does not use all its imports and values: that is no error here.
		config := types.Config{Importer: im, Error: func(err error) {
			for _, fine := range []string{"and not used", "is not used", "redeclared", "missing return"} {
				if strings.Contains(err.Error(), fine) {
					return
				}
			}
			t.Fatalf("%s: %v", body, err)
		}}
		_, _ = config.Check("p", fset, []*ast.File{file}, info)
		return slices.DeleteFunc(check(fset, []*ast.File{file}, info, allRules()...), func(f finding) bool { return f.in != "snippet" })
	}
	for _, s := range snippets() {
		tested[s.rule] = true
		require.NotEmpty(t, s.bad)
		require.NotEmpty(t, s.good)
		for _, body := range s.bad {
			found := run(s.using, body)
			require.True(t, slices.ContainsFunc(found, func(f finding) bool { return f.rule == s.rule }), "%s: not found in %q: %v", s.rule, body, found)
		}
		for _, body := range s.good {
			found := run(s.using, body)
			require.False(t, slices.ContainsFunc(found, func(f finding) bool { return f.rule == s.rule }), "%s: found in %q: %v", s.rule, body, found)
		}
	}
	for _, r := range allRules() {
		require.True(t, tested[r], "no snippet breaks the rule %q", r)
	}
}

// What the whole-module test asks of each package is what the design says.
func TestForbiddenRulesOfPackages(t *testing.T) {
	for _, pkg := range []string{"catalog", "star", "api/service", "verify"} {
		require.Equal(t, allRules(), rulesFor(pkg))
	}
	require.NotContains(t, rulesFor("auditor"), ruleBucketDelete)
	require.Contains(t, rulesFor("auditor"), ruleBucketList, "the decommission sweep is an exception by name")
	require.Equal(t, []rule{ruleGo, ruleBucketDelete, ruleBucketList}, rulesFor("api"))
	require.Equal(t, []rule{ruleGo}, rulesFor("sim"))
	require.Equal(t, []rule{ruleBucketDelete, ruleBucketList}, rulesFor("cmd/novad"))
	require.Equal(t, []rule{ruleBucketDelete, ruleBucketList}, rulesFor("metastore/pebblestore"))
	require.Empty(t, rulesFor("objstore/dirbucket"))
}
