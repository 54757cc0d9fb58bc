package nova_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"
)

// dependencies are all packages that a command is linked of.
func dependencies(t *testing.T, command string) map[string]bool {
	t.Helper()
	pkgs, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedImports | packages.NeedDeps}, command)
	require.NoError(t, err)
	all := map[string]bool{}
	packages.Visit(pkgs, func(p *packages.Package) bool {
		all[p.PkgPath] = true
		return true
	}, nil)
	return all
}

// The simulator is linked of no client of a network's, so that a run cannot depend on one; and the server of
// no store that tests use.
func TestLinks(t *testing.T) {
	const aws, fake = "github.com/aws/aws-sdk-go-v2", "github.com/johannesboyne/gofakes3"
	for pkg := range dependencies(t, "./cmd/novasim") {
		for _, client := range []string{aws, fake, "go.etcd.io/etcd", module + "/objstore/s3bucket", module + "/metastore/etcdstore"} {
			require.False(t, strings.HasPrefix(pkg, client), "novasim links %s", pkg)
		}
	}
	server := dependencies(t, "./cmd/novad")
	require.True(t, server[aws+"/service/s3"], "the check sees what is linked")
	for pkg := range server {
		require.False(t, strings.HasPrefix(pkg, fake), "novad links %s", pkg)
	}
}
