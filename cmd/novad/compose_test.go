package main

import (
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

const composeFile = "../../deploy/docker/docker-compose.yml"

// composed is what a service of the compose stack would run with.
type composed struct {
	Image       string            `yaml:"image"`
	Profiles    []string          `yaml:"profiles"`
	Environment map[string]string `yaml:"environment"`
	Healthcheck struct {
		Test []string `yaml:"test"`
	} `yaml:"healthcheck"`
}

// One binary runs in three shapes.
func TestThreeShapes(t *testing.T) {
	for _, shape := range []struct {
		flags         []string
		serves, audit bool
	}{
		{nil, true, true},
		{[]string{"--no-audit"}, true, false},
		{[]string{"--audit-only", "--metastore", "etcd://127.0.0.1:2379/n", "--bucket", "s3://b/p"}, false, true},
	} {
		var c cli
		parser, err := kong.New(&c, serveDefaults(), kong.Vars{"version": "test"})
		require.NoError(t, err)
		_, err = parser.Parse(append([]string{"serve"}, shape.flags...))
		require.NoError(t, err)
		cfg, err := c.Serve.config(slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		require.Equal(t, []bool{shape.serves, shape.audit}, []bool{cfg.Serve, cfg.Audit}, "%v", shape.flags)
	}
}

var substitution = regexp.MustCompile(`\$\{(\w+):-(\w*)\}`)

// The compose stack runs in two shapes, which one variable and one profile tell apart; in each of them novad takes
// every service's environment as it is, and the ring has somebody in it.
func TestComposeShapes(t *testing.T) {
	raw, err := os.ReadFile(composeFile)
	require.NoError(t, err)
	for _, shape := range []struct {
		name, noAudit, profile    string
		serving, auditing, audits int // services that serve, that audit, that audit only
	}{
		{"both roles in each node", "", "", 2, 2, 0},
		{"audit split", "true", "audit-split", 2, 1, 1},
	} {
		t.Run(shape.name, func(t *testing.T) {
			text := substitution.ReplaceAllStringFunc(string(raw), func(s string) string {
				m := substitution.FindStringSubmatch(s)
				require.Equal(t, "NOVA_NO_AUDIT", m[1])
				if shape.noAudit != "" {
					return shape.noAudit
				}
				return m[2]
			})
			var stack struct {
				Services map[string]composed `yaml:"services"`
			}
			require.NoError(t, yaml.Unmarshal([]byte(text), &stack))
			serving, auditing, audits := 0, 0, 0
			for name, s := range stack.Services {
				if s.Image != "nova" || len(s.Profiles) > 0 && !slices.Contains(s.Profiles, shape.profile) {
					continue
				}
				for k, v := range s.Environment {
					t.Setenv(k, v)
				}
				var c cli
				parser, err := kong.New(&c, kong.DefaultEnvars("NOVA"), serveDefaults(), kong.Vars{"version": "test"})
				require.NoError(t, err)
				_, err = parser.Parse([]string{"serve"})
				require.NoError(t, err, name)
				_, err = c.Serve.config(slog.New(slog.NewTextHandler(io.Discard, nil)))
				require.NoError(t, err, name)
				require.NoError(t, c.Serve.checkListen(c.Serve.Listen), name)
				require.Equal(t, []string{"CMD", "novad"}, s.Healthcheck.Test[:2], name)
				parsed, err := parser.Parse(s.Healthcheck.Test[2:])
				require.NoError(t, err, name)
				require.Equal(t, "ready", parsed.Command(), name)
				_, err = parser.Parse([]string{"serve"})
				require.NoError(t, err, name)
				if !c.Serve.AuditOnly {
					serving++
				}
				if !c.Serve.NoAudit {
					auditing++
				}
				if c.Serve.AuditOnly {
					audits++
				}
				for k := range s.Environment {
					require.NoError(t, os.Unsetenv(k))
				}
			}
			require.Equal(t, []int{shape.serving, shape.auditing, shape.audits}, []int{serving, auditing, audits})
		})
	}
}
