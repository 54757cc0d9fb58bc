package metrics_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/nova-store/nova/catalog"
)

// ruleGroups is the shape of a Prometheus rules file.
type ruleGroups struct {
	Groups []struct {
		Name     string         `yaml:"name"`
		Interval model.Duration `yaml:"interval"`
		Rules    []alertingRule `yaml:"rules"`
	} `yaml:"groups"`
}

type alertingRule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         model.Duration    `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// The alerting rules have the shape of a rules file, name no metric that is not exported, and the
// alerts on the age of the queues have the companion that notices silence.
func TestAlertingRules(t *testing.T) {
	text, err := os.ReadFile("../deploy/prometheus/nova-alerts.yml")
	require.NoError(t, err)
	var file ruleGroups
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	require.NoError(t, d.Decode(&file))

	exported := map[string]bool{}
	for name := range everything(t).scrape() {
		exported[name] = true
	}
	metric := regexp.MustCompile(`\bnova_[a-z_]+`)
	groups, alerts := map[string]bool{}, map[string]string{}
	for _, g := range file.Groups {
		require.False(t, groups[g.Name], "group %s twice", g.Name)
		groups[g.Name] = true
		require.NotEmpty(t, g.Rules)
		for _, r := range g.Rules {
			require.Regexp(t, `^Nova[A-Za-z]+$`, r.Alert)
			require.NotContains(t, alerts, r.Alert)
			alerts[r.Alert] = r.Expr
			require.NotEmpty(t, r.Labels["severity"], r.Alert)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.True(t, balanced(r.Expr), "%s: %s", r.Alert, r.Expr)
			names := metric.FindAllString(r.Expr, -1)
			require.NotEmpty(t, names, r.Alert)
			for _, name := range names {
				require.True(t, exported[strings.TrimSuffix(name, "_count")], "%s: there is no metric %s", r.Alert, name)
			}
		}
	}
	for _, q := range []string{"teardown", "settle", "retention", "reap", "trimcheck", "denorm"} {
		watched := false
		for _, expr := range alerts {
			watched = watched || strings.Contains(expr, "nova_auditor_due_age_seconds") && strings.Contains(expr, q)
		}
		require.True(t, watched, "no alert on the age of %s", q)
	}
	require.Regexp(t, `^absent\(nova_auditor_due_age_seconds\{.*queue="settle"\}\)$`, alerts["NovaAuditorSilent"])
}

// The rules about what Nova stands on watch its disk, etcd and the stars, and name no metric of Nova's own.
func TestAlertingRulesOfOthers(t *testing.T) {
	text, err := os.ReadFile("../deploy/prometheus/storage-alerts.yml")
	require.NoError(t, err)
	var file ruleGroups
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	require.NoError(t, d.Decode(&file))
	all := ""
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			require.Regexp(t, `^Nova[A-Za-z]+$`, r.Alert)
			require.NotEmpty(t, r.Labels["severity"], r.Alert)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.True(t, balanced(r.Expr), "%s: %s", r.Alert, r.Expr)
			require.NotContains(t, r.Expr, "nova_")
			all += r.Expr + "\n"
		}
	}
	for _, name := range []string{"node_filesystem_avail_bytes", "etcd_mvcc_db_total_size_in_bytes", "kube_pod_status_ready"} {
		require.Contains(t, all, name)
	}
}

// balanced tells whether brackets and quotes of an expression are closed, in order.
func balanced(expr string) bool {
	var open []rune
	quoted := false
	closes := map[rune]rune{')': '(', ']': '[', '}': '{'}
	for _, c := range expr {
		switch {
		case c == '"':
			quoted = !quoted
		case quoted:
		case strings.ContainsRune("([{", c):
			open = append(open, c)
		case closes[c] != 0:
			if len(open) == 0 || open[len(open)-1] != closes[c] {
				return false
			}
			open = open[:len(open)-1]
		}
	}
	return !quoted && len(open) == 0
}

// What the age of each queue means, what it costs and where to look is documented, and which queues have none.
func TestEachAgeIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	for _, q := range catalog.Queues() {
		if q == catalog.Orphan || q == catalog.GC {
			continue
		}
		require.Regexp(t, "(?m)^\\| `"+string(q)+"` \\| [^|]{20,} \\| [^|]{5,} \\| [^|]{20,} \\|$", string(text))
	}
	require.Contains(t, string(text), "`orphan` and `gc` are not ordered by time and have no age")
}
