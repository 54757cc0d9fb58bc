package validate

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	strict "sigs.k8s.io/yaml"
)

// kinds are the types of the documents that the manifests may hold.
var kinds = map[string]func() metav1.Object{
	"v1/Namespace":                           func() metav1.Object { return new(corev1.Namespace) },
	"v1/ConfigMap":                           func() metav1.Object { return new(corev1.ConfigMap) },
	"v1/Secret":                              func() metav1.Object { return new(corev1.Secret) },
	"v1/Service":                             func() metav1.Object { return new(corev1.Service) },
	"v1/ServiceAccount":                      func() metav1.Object { return new(corev1.ServiceAccount) },
	"apps/v1/StatefulSet":                    func() metav1.Object { return new(appsv1.StatefulSet) },
	"apps/v1/Deployment":                     func() metav1.Object { return new(appsv1.Deployment) },
	"policy/v1/PodDisruptionBudget":          func() metav1.Object { return new(policyv1.PodDisruptionBudget) },
	"autoscaling/v2/HorizontalPodAutoscaler": func() metav1.Object { return new(autoscalingv2.HorizontalPodAutoscaler) },
	"networking.k8s.io/v1/NetworkPolicy":     func() metav1.Object { return new(networkingv1.NetworkPolicy) },
}

// decode reads the documents of a file, none of which may have a field that its type does not.
func decode(t *testing.T, file string) []metav1.Object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", file))
	require.NoError(t, err)
	var out []metav1.Object
	for _, doc := range bytes.Split(text, []byte("\n---\n")) {
		var head metav1.TypeMeta
		require.NoError(t, strict.Unmarshal(doc, &head), file)
		kind := head.APIVersion + "/" + head.Kind
		require.Contains(t, kinds, kind, file)
		o := kinds[kind]()
		require.NoError(t, strict.UnmarshalStrict(doc, o), "%s: %s", file, kind)
		require.NotEmpty(t, o.GetName(), "%s: %s", file, kind)
		out = append(out, o)
	}
	return out
}

// kustomization is what of one is used.
type kustomization struct {
	metav1.TypeMeta `json:",inline"`
	Namespace       string   `json:"namespace"`
	Resources       []string `json:"resources"`
	Images          []struct {
		Name    string `json:"name"`
		NewName string `json:"newName"`
		NewTag  string `json:"newTag"`
	} `json:"images"`
}

func read(t *testing.T) (kustomization, []metav1.Object) {
	t.Helper()
	text, err := os.ReadFile("../kustomization.yaml")
	require.NoError(t, err)
	var k kustomization
	require.NoError(t, strict.UnmarshalStrict(text, &k))
	var all []metav1.Object
	for _, file := range k.Resources {
		all = append(all, decode(t, file)...)
	}
	return k, all
}

// of returns the documents of a type, by their names.
func of[T metav1.Object](all []metav1.Object) map[string]T {
	out := make(map[string]T)
	for _, o := range all {
		if o, ok := o.(T); ok {
			out[o.GetName()] = o
		}
	}
	return out
}

// pods are the templates of the workloads.
func pods(all []metav1.Object) map[string]corev1.PodTemplateSpec {
	out := make(map[string]corev1.PodTemplateSpec)
	for name, s := range of[*appsv1.StatefulSet](all) {
		out[name] = s.Spec.Template
	}
	for name, d := range of[*appsv1.Deployment](all) {
		out[name] = d.Spec.Template
	}
	return out
}

func TestTheKustomizationNamesEveryManifest(t *testing.T) {
	k, all := read(t)
	require.Equal(t, "kustomize.config.k8s.io/v1beta1/Kustomization", k.APIVersion+"/"+k.Kind)
	files, err := filepath.Glob("../*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		switch name := filepath.Base(file); name {
		case "kustomization.yaml", "secrets.example.yaml", "prometheus-adapter.yaml":
		default:
			require.Contains(t, k.Resources, name)
		}
	}
	require.Contains(t, of[*corev1.Namespace](all), k.Namespace)
	require.Len(t, pods(all), 2)
	seen := make(map[string]bool)
	for _, o := range all {
		if ns := o.GetNamespace(); ns != "" {
			require.Equal(t, k.Namespace, ns)
		}
	}
	for name, p := range pods(all) {
		for _, c := range p.Spec.Containers {
			seen[c.Image] = true
			require.Equal(t, k.Images[0].Name, c.Image, name)
		}
	}
	require.Len(t, seen, len(k.Images))
}

func TestSelectorsSelect(t *testing.T) {
	_, all := read(t)
	selected := func(selector map[string]string) (names []string) {
		require.NotEmpty(t, selector)
		for name, p := range pods(all) {
			if matches := maps.Clone(p.Labels); len(matches) > 0 {
				maps.Copy(matches, selector)
				if maps.Equal(matches, p.Labels) {
					names = append(names, name)
				}
			}
		}
		return names
	}
	for name, s := range of[*appsv1.StatefulSet](all) {
		require.Equal(t, []string{name}, selected(s.Spec.Selector.MatchLabels))
		governing := of[*corev1.Service](all)[s.Spec.ServiceName]
		require.NotNil(t, governing, s.Spec.ServiceName)
		require.Equal(t, corev1.ClusterIPNone, governing.Spec.ClusterIP)
		require.Equal(t, []string{name}, selected(governing.Spec.Selector))
	}
	for name, d := range of[*appsv1.Deployment](all) {
		require.Equal(t, []string{name}, selected(d.Spec.Selector.MatchLabels))
	}
	for name, b := range of[*policyv1.PodDisruptionBudget](all) {
		require.Equal(t, []string{name}, selected(b.Spec.Selector.MatchLabels), "a budget has the name of what it is for")
		require.Nil(t, b.Spec.MinAvailable)
		require.Equal(t, 1, b.Spec.MaxUnavailable.IntValue())
	}
	require.Len(t, of[*policyv1.PodDisruptionBudget](all), len(pods(all)))
	for name, s := range of[*corev1.Service](all) {
		require.Equal(t, []string{"nova-star"}, selected(s.Spec.Selector), name)
	}
	for name, p := range pods(all) {
		for _, spread := range p.Spec.TopologySpreadConstraints {
			require.Equal(t, []string{name}, selected(spread.LabelSelector.MatchLabels))
		}
	}
	for name, policy := range of[*networkingv1.NetworkPolicy](all) {
		require.Len(t, selected(policy.Spec.PodSelector.MatchLabels), len(pods(all)), name)
	}
}

// ports are those of a container by name.
func ports(c corev1.Container) map[string]int32 {
	out := make(map[string]int32)
	for _, p := range c.Ports {
		out[p.Name] = p.ContainerPort
	}
	return out
}

func TestPortsAndProbesAgree(t *testing.T) {
	_, all := read(t)
	listen := of[*corev1.ConfigMap](all)["nova"].Data["NOVA_LISTEN"]
	for name, p := range pods(all) {
		require.Len(t, p.Spec.Containers, 1)
		c := p.Spec.Containers[0]
		require.True(t, strings.HasSuffix(listen, ":"+strconv.Itoa(int(ports(c)["http"]))), "%s: %s listens on %s", name, c.Name, listen)
		for probe, path := range map[*corev1.Probe]string{c.StartupProbe: "/livez", c.LivenessProbe: "/livez", c.ReadinessProbe: "/readyz"} {
			require.NotNil(t, probe, name)
			require.Equal(t, path, probe.HTTPGet.Path, name)
			require.Contains(t, ports(c), probe.HTTPGet.Port.StrVal, name)
		}
		// A pod that is only busy is not killed before one that cannot start is given up.
		require.Greater(t, c.StartupProbe.PeriodSeconds*c.StartupProbe.FailureThreshold, c.LivenessProbe.PeriodSeconds*c.LivenessProbe.FailureThreshold, name)
		for service, s := range of[*corev1.Service](all) {
			for _, port := range s.Spec.Ports {
				require.Contains(t, ports(c), port.TargetPort.StrVal, service)
				require.Equal(t, ports(c)[port.TargetPort.StrVal], port.Port, service)
			}
		}
		for policy, n := range of[*networkingv1.NetworkPolicy](all) {
			for _, rule := range n.Spec.Ingress {
				require.NotEmpty(t, rule.From, policy)
				for _, port := range rule.Ports {
					require.Contains(t, ports(c), port.Port.StrVal, policy)
				}
			}
		}
	}
}

func TestPodsAreConfined(t *testing.T) {
	_, all := read(t)
	for name, p := range pods(all) {
		require.True(t, *p.Spec.SecurityContext.RunAsNonRoot, name)
		require.Positive(t, *p.Spec.SecurityContext.RunAsUser, name)
		require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, p.Spec.SecurityContext.SeccompProfile.Type, name)
		require.False(t, *p.Spec.AutomountServiceAccountToken, name)
		require.Contains(t, of[*corev1.ServiceAccount](all), p.Spec.ServiceAccountName, name)
		for _, c := range p.Spec.Containers {
			require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, name)
			require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, name)
			require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, name)
			memory := c.Resources.Limits.Memory()
			require.Positive(t, c.Resources.Requests.Cpu().MilliValue(), name)
			require.Positive(t, c.Resources.Requests.Memory().Value(), name)
			require.LessOrEqual(t, c.Resources.Requests.Memory().Value(), memory.Value(), name)
			limit := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
			require.GreaterOrEqual(t, limit, 0, name)
			mebibytes, err := strconv.ParseInt(strings.TrimSuffix(c.Env[limit].Value, "MiB"), 10, 64)
			require.NoError(t, err, name)
			require.Less(t, mebibytes<<20, memory.Value(), "%s: the runtime collects before the kernel kills", name)
		}
	}
}

func TestWhatPodsTakeExists(t *testing.T) {
	_, all := read(t)
	secrets := of[*corev1.Secret](decode(t, "secrets.example.yaml"))
	for name, p := range pods(all) {
		volumes := make(map[string]bool)
		for _, v := range p.Spec.Volumes {
			volumes[v.Name] = true
			require.Contains(t, secrets, v.Secret.SecretName, name)
			require.EqualValues(t, 0o440, *v.Secret.DefaultMode, name)
		}
		for _, c := range p.Spec.Containers {
			for _, m := range c.VolumeMounts {
				require.True(t, volumes[m.Name], "%s mounts %s", name, m.Name)
				require.True(t, m.ReadOnly)
			}
			for _, from := range c.EnvFrom {
				if from.ConfigMapRef != nil {
					require.Contains(t, of[*corev1.ConfigMap](all), from.ConfigMapRef.Name, name)
				} else {
					require.Contains(t, secrets, from.SecretRef.Name, name)
				}
			}
		}
	}
	for name, h := range of[*autoscalingv2.HorizontalPodAutoscaler](all) {
		target := of[*appsv1.Deployment](all)[h.Spec.ScaleTargetRef.Name]
		require.NotNil(t, target, name)
		require.Equal(t, "Deployment", h.Spec.ScaleTargetRef.Kind)
		require.Nil(t, target.Spec.Replicas, "or each apply would undo what the autoscaler did")
		require.GreaterOrEqual(t, *h.Spec.MinReplicas, int32(2), "a budget of one that may be away needs another")
	}
}

// The autoscaler's metric is the one that the adapter's rule makes, of series that novad has.
func TestTheAutoscalersMetricExists(t *testing.T) {
	text, err := os.ReadFile("../prometheus-adapter.yaml")
	require.NoError(t, err)
	var values struct {
		Rules struct {
			Custom []struct {
				SeriesQuery string `json:"seriesQuery"`
				Resources   struct {
					Overrides map[string]struct {
						Resource string `json:"resource"`
					} `json:"overrides"`
				} `json:"resources"`
				Name struct {
					As string `json:"as"`
				} `json:"name"`
				MetricsQuery string `json:"metricsQuery"`
			} `json:"custom"`
		} `json:"rules"`
	}
	require.NoError(t, strict.UnmarshalStrict(text, &values))
	require.Len(t, values.Rules.Custom, 1)
	rule := values.Rules.Custom[0]
	docs, err := os.ReadFile("../../../docs/metrics.md")
	require.NoError(t, err)
	for _, series := range []string{"nova_auditor_pool_workers", "nova_auditor_pool_worked_seconds_total"} {
		require.Contains(t, rule.MetricsQuery, series+"{<<.LabelMatchers>>}")
		require.Contains(t, string(docs), "`"+series+"`")
	}
	require.True(t, strings.HasPrefix(rule.SeriesQuery, "nova_auditor_pool_workers{"))
	_, all := read(t)
	for _, h := range of[*autoscalingv2.HorizontalPodAutoscaler](all) {
		require.Equal(t, rule.Name.As, h.Spec.Metrics[0].Pods.Metric.Name)
		require.Equal(t, int64(700), h.Spec.Metrics[0].Pods.Target.AverageValue.MilliValue())
	}
}
