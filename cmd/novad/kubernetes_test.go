package main

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

const manifests = "../../deploy/kubernetes"

// manifest is what of a workload's manifest is novad's affair. Whether it is one of Kubernetes, and whether
// manifests fit one another, is for the tests of deploy/kubernetes/validate.
type manifest struct {
	Kind     string                `yaml:"kind"`
	Metadata struct{ Name string } `yaml:"metadata"`
	Data     map[string]string     `yaml:"data"`
	Spec     struct {
		Template struct {
			Spec struct {
				Grace      int         `yaml:"terminationGracePeriodSeconds"`
				Containers []container `yaml:"containers"`
			} `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

type container struct {
	Args []string `yaml:"args"`
	Env  []struct {
		Name      string         `yaml:"name"`
		Value     string         `yaml:"value"`
		ValueFrom map[string]any `yaml:"valueFrom"`
	} `yaml:"env"`
	Lifecycle struct {
		PreStop struct {
			Exec struct {
				Command []string `yaml:"command"`
			} `yaml:"exec"`
		} `yaml:"preStop"`
	} `yaml:"lifecycle"`
}

func readManifests(t *testing.T) []manifest {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(manifests, "*.yaml"))
	require.NoError(t, err)
	var all []manifest
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		d := yaml.NewDecoder(bytes.NewReader(text))
		for {
			var m manifest
			err := d.Decode(&m)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, file)
			all = append(all, m)
		}
	}
	return all
}

// novad takes what the pods give it as it is: every variable is one of a flag, the files that it names are there,
// and both workloads come to what they are called. What preStop runs is a command, and ends before the pod is killed.
func TestKubernetesManifests(t *testing.T) {
	all := readManifests(t)
	var shared map[string]string
	for _, m := range all {
		if m.Kind == "ConfigMap" {
			shared = m.Data
		}
	}
	require.NotEmpty(t, shared)
	tokens := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte("open-sesame-0123456789\n"), 0o600))

	shapes := map[string][]bool{"nova-star": {true, false}, "nova-auditor": {false, true}} // serves, audits
	for _, m := range all {
		if m.Kind != "StatefulSet" && m.Kind != "Deployment" {
			continue
		}
		t.Run(m.Metadata.Name, func(t *testing.T) {
			c := m.Spec.Template.Spec.Containers[0]
			env := make(map[string]string)
			for k, v := range shared {
				env[k] = v
			}
			for _, e := range c.Env {
				env[e.Name] = e.Value
				if e.ValueFrom != nil { // the one field is the pod's name
					env[e.Name] = m.Metadata.Name + "-0"
				}
			}
			require.Equal(t, "/etc/nova/tokens/tokens", env["NOVA_AUTH_TOKEN_FILE"])
			env["NOVA_AUTH_TOKEN_FILE"] = tokens
			for k, v := range env {
				t.Setenv(k, v)
			}
			var parsed cli
			parser, err := kong.New(&parsed, kong.DefaultEnvars("NOVA"), serveDefaults(), kong.Vars{"version": "test"})
			require.NoError(t, err)
			command, err := parser.Parse(c.Args)
			require.NoError(t, err)
			known := map[string]bool{"GOMEMLIMIT": true} // the runtime's own
			for _, group := range command.Selected().AllFlags(false) {
				for _, f := range group {
					for _, name := range f.Envs {
						known[name] = true
					}
				}
			}
			for k := range env {
				require.True(t, known[k], "%s is the variable of no flag of novad serve", k)
			}
			cfg, err := parsed.Serve.config(slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			require.Equal(t, shapes[m.Metadata.Name], []bool{cfg.Serve, cfg.Audit})
			require.NoError(t, parsed.Serve.checkListen(parsed.Serve.Listen))
			secured, err := parsed.Serve.open(slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			require.NotNil(t, secured.guard)

			stop := c.Lifecycle.PreStop.Exec.Command
			require.Equal(t, "/usr/bin/novad", stop[0], "where the image has it")
			var end cli
			parser, err = kong.New(&end, serveDefaults(), kong.Vars{"version": "test"})
			require.NoError(t, err)
			command, err = parser.Parse(stop[1:])
			require.NoError(t, err)
			require.Equal(t, "drain", command.Command())
			require.Equal(t, shared["NOVA_AUTH_TOKEN_FILE"], end.Drain.TokenFile)
			require.Greater(t, time.Duration(m.Spec.Template.Spec.Grace)*time.Second, end.Drain.Delay+end.Drain.Timeout+shutdownTimeout)
			require.GreaterOrEqual(t, end.Drain.Delay, 3*time.Second, "endpoints name the pod for a moment longer")
			require.Greater(t, end.Drain.Timeout, cfg.Timing.JobDeadline, "a drain waits for the jobs under way")
			delete(shapes, m.Metadata.Name)
		})
	}
	require.Empty(t, shapes)
}
