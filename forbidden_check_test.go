package nova_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// rule is something that code above the clock may not do.
type rule string

// The rules of design's list, and two about who calls the bucket.
const (
	ruleGo           rule = "go statement"
	ruleSelect       rule = "select"
	ruleChannel      rule = "channel"
	ruleSync         rule = "sync primitive"
	ruleLock         rule = "lock held across a call"
	ruleTime         rule = "wall clock"
	ruleContext      rule = "context timer"
	ruleRand         rule = "random source"
	ruleRecover      rule = "recover"
	ruleMapRange     rule = "range over a map"
	ruleBucketDelete rule = "Bucket.Delete"
	ruleBucketList   rule = "Bucket.List"
)

func allRules() []rule {
	return []rule{ruleGo, ruleSelect, ruleChannel, ruleSync, ruleLock, ruleTime, ruleContext, ruleRand,
		ruleRecover, ruleMapRange, ruleBucketDelete, ruleBucketList}
}

// finding is one breach.
type finding struct {
	rule rule
	pos  token.Position
	in   string // the function, as FuncDecl names it: "(*T).F" or "F"; "" outside any
	what string
}

func (f finding) String() string {
	return fmt.Sprintf("%s: %s: %s (in %s)", f.pos, f.rule, f.what, f.in)
}

// checker walks one package. What an identifier means is asked of the type checker,
// so that renamed imports and dot imports hide nothing.
type checker struct {
	fset  *token.FileSet
	info  *types.Info
	rules map[rule]bool
	in    string
	// sorted are the names of maps.Keys and its like that stand directly within slices.Sorted,
	// which takes the map's order away. A call is seen before what it is called with.
	sorted   map[*ast.Ident]bool
	findings []finding
}

// check returns the breaches of these rules in the files.
func check(fset *token.FileSet, files []*ast.File, info *types.Info, rules ...rule) []finding {
	c := &checker{fset: fset, info: info, rules: map[rule]bool{}, sorted: map[*ast.Ident]bool{}}
	for _, r := range rules {
		c.rules[r] = true
	}
	for _, file := range files {
		for _, decl := range file.Decls {
			c.in = ""
			if f, ok := decl.(*ast.FuncDecl); ok {
				c.in = funcName(f)
			}
			ast.Inspect(decl, func(n ast.Node) bool { c.node(n); return true })
		}
	}
	return c.findings
}

func funcName(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return f.Name.Name
	}
	t := types.ExprString(f.Recv.List[0].Type)
	if i := strings.IndexByte(t, '['); i >= 0 {
		t = t[:i] // a generic type's parameters
	}
	if strings.HasPrefix(t, "*") {
		t = "(" + t + ")"
	}
	return t + "." + f.Name.Name
}

func (c *checker) report(n ast.Node, r rule, format string, args ...any) {
	if c.rules[r] {
		c.findings = append(c.findings, finding{r, c.fset.Position(n.Pos()), c.in, fmt.Sprintf(format, args...)})
	}
}

func (c *checker) node(n ast.Node) {
	switch n := n.(type) {
	case *ast.GoStmt:
		c.report(n, ruleGo, "go")
	case *ast.SelectStmt:
		c.report(n, ruleSelect, "select")
	case *ast.ChanType:
		c.report(n, ruleChannel, "a channel type")
	case *ast.SendStmt:
		c.report(n, ruleChannel, "a send")
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			c.report(n, ruleChannel, "a receive")
		}
	case *ast.RangeStmt:
		c.rangeOver(n)
	case *ast.Ident:
		c.use(n)
	case *ast.CallExpr:
		c.call(n)
	case *ast.BlockStmt:
		c.locks(n.List)
	case *ast.CaseClause:
		c.locks(n.Body)
	}
}

func (c *checker) rangeOver(n *ast.RangeStmt) {
	switch types.Unalias(c.info.TypeOf(n.X)).Underlying().(type) {
	case *types.Chan:
		c.report(n, ruleChannel, "a range over a channel")
	case *types.Map:
		c.report(n, ruleMapRange, "%s", types.ExprString(n.X))
	case *types.Interface: // of a type parameter: its constraint
		c.report(n, ruleMapRange, "%s, which may be a map", types.ExprString(n.X))
	}
}

// The functions and types that are refused, by package. A name of a type forbids the type,
// and with it its methods.
func refused(path, name string) (rule, bool) {
	switch path {
	case "time":
		switch name {
		case "Now", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Since", "Until", "Timer", "Ticker":
			return ruleTime, true
		}
	case "context":
		switch name {
		case "WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause", "WithCancel", "WithCancelCause", "AfterFunc":
			return ruleContext, true
		}
	case "math/rand", "math/rand/v2":
		// A source of one's own, from a seed, is a pure function; the global one is not.
		if !strings.HasPrefix(name, "New") && ast.IsExported(name) {
			return ruleRand, true
		}
	case "crypto/rand":
		return ruleRand, true
	case "sync":
		// A Mutex may guard a few words: the lock rule looks at what happens under it.
		if name != "Mutex" && name != "Locker" {
			return ruleSync, true
		}
	case "golang.org/x/sync/errgroup", "golang.org/x/sync/semaphore", "golang.org/x/sync/singleflight":
		return ruleSync, true
	case "maps":
		// Sequences in a map's order. Within slices.Sorted they are fine: see call.
		switch name {
		case "All", "Keys", "Values":
			return ruleMapRange, true
		}
	}
	return "", false
}

// use judges what an identifier means.
func (c *checker) use(n *ast.Ident) {
	obj := c.info.Uses[n]
	if obj == nil {
		return
	}
	if b, ok := obj.(*types.Builtin); ok {
		switch b.Name() {
		case "recover":
			c.report(n, ruleRecover, "recover")
		case "close":
			c.report(n, ruleChannel, "a close")
		}
		return
	}
	if obj.Pkg() == nil || obj.Parent() != obj.Pkg().Scope() {
		return // not a package's own name: methods and fields come with their types
	}
	if r, ok := refused(obj.Pkg().Path(), obj.Name()); ok && !c.sorted[n] {
		c.report(n, r, "%s.%s", obj.Pkg().Path(), obj.Name())
	}
}

func (c *checker) call(n *ast.CallExpr) {
	fn := c.callee(n)
	if fn == nil {
		return
	}
	if fn.Pkg() != nil && fn.Pkg().Path() == "slices" && strings.HasPrefix(fn.Name(), "Sorted") && len(n.Args) > 0 {
		if inner, ok := n.Args[0].(*ast.CallExpr); ok {
			if id := calledName(inner); id != nil {
				c.sorted[id] = true
			}
		}
	}
	if recv := fn.Signature().Recv(); recv != nil && isBucket(c.receiver(n)) {
		switch fn.Name() {
		case "Delete":
			c.report(n, ruleBucketDelete, "%s", types.ExprString(n.Fun))
		case "List":
			c.report(n, ruleBucketList, "%s", types.ExprString(n.Fun))
		}
	}
}

func calledName(n *ast.CallExpr) *ast.Ident {
	switch f := ast.Unparen(n.Fun).(type) {
	case *ast.Ident:
		return f
	case *ast.SelectorExpr:
		return f.Sel
	case *ast.IndexExpr:
		if s, ok := f.X.(*ast.SelectorExpr); ok {
			return s.Sel
		}
	}
	return nil
}

// callee is the function or method that a call names; nil for conversions, builtins and
// values of function type.
func (c *checker) callee(n *ast.CallExpr) *types.Func {
	if id := calledName(n); id != nil {
		f, _ := c.info.Uses[id].(*types.Func)
		return f
	}
	return nil
}

// receiver is the type of the value that a method is called on.
func (c *checker) receiver(n *ast.CallExpr) types.Type {
	if s, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok {
		return c.info.TypeOf(s.X)
	}
	return nil
}

// isBucket tells whether a type has a bucket's methods, whoever declares it.
func isBucket(t types.Type) bool {
	if t == nil {
		return false
	}
	set := types.NewMethodSet(t)
	if _, ok := t.Underlying().(*types.Interface); !ok && !isPointer(t) {
		set = types.NewMethodSet(types.NewPointer(t))
	}
	for _, name := range []string{"Put", "Get", "Stat", "Delete", "List"} {
		if set.Lookup(nil, name) == nil {
			return false
		}
	}
	return true
}

func isPointer(t types.Type) bool {
	_, ok := t.Underlying().(*types.Pointer)
	return ok
}

// locks looks at what happens between Lock and Unlock of a sync.Mutex in one list of
// statements (to its end where the unlock is deferred or comes in a branch): nothing
// that takes a context, since whatever may wait does.
func (c *checker) locks(list []ast.Stmt) {
	for i, s := range list {
		of, ok := c.mutexCall(s, "Lock")
		if !ok {
			continue
		}
		end := slices.IndexFunc(list[i+1:], func(s ast.Stmt) bool { u, ok := c.mutexCall(s, "Unlock"); return ok && u == of })
		held := list[i+1:]
		if end >= 0 {
			held = held[:end]
		}
		for _, h := range held {
			if u, ok := c.deferredUnlock(h); ok && u == of {
				continue
			}
			c.underLock(h, of)
		}
	}
}

// underLock reports what waits in a statement, up to where a branch of it unlocks.
func (c *checker) underLock(s ast.Stmt, of string) {
	released := false
	ast.Inspect(s, func(n ast.Node) bool {
		if st, ok := n.(ast.Stmt); ok {
			if u, ok := c.mutexCall(st, "Unlock"); ok && u == of {
				released = true
			}
		}
		call, ok := n.(*ast.CallExpr)
		if !ok || released {
			return true
		}
		if sig, ok := types.Unalias(c.info.TypeOf(call.Fun)).Underlying().(*types.Signature); ok {
			for p := range sig.Params().Variables() {
				if types.TypeString(p.Type(), nil) == "context.Context" {
					c.report(call, ruleLock, "%s under %s.Lock", types.ExprString(call.Fun), of)
					break
				}
			}
		}
		return true
	})
}

// mutexCall tells whether a statement is X.Lock() or X.Unlock() of a sync.Mutex, and
// what X is.
func (c *checker) mutexCall(s ast.Stmt, method string) (of string, ok bool) {
	e, isExpr := s.(*ast.ExprStmt)
	if !isExpr {
		return "", false
	}
	call, isCall := e.X.(*ast.CallExpr)
	return c.mutexMethod(call, method, isCall)
}

func (c *checker) deferredUnlock(s ast.Stmt) (of string, ok bool) {
	d, isDefer := s.(*ast.DeferStmt)
	if !isDefer {
		return "", false
	}
	return c.mutexMethod(d.Call, "Unlock", true)
}

func (c *checker) mutexMethod(call *ast.CallExpr, method string, isCall bool) (string, bool) {
	if !isCall {
		return "", false
	}
	fn := c.callee(call)
	sel, isSel := call.Fun.(*ast.SelectorExpr)
	if fn == nil || !isSel || fn.FullName() != "(*sync.Mutex)."+method {
		return "", false
	}
	return types.ExprString(sel.X), true
}
