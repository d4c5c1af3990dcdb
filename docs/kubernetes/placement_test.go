package kubernetes_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// Long-running pods are spread over nodes and zones, and a drain of nodes leaves enough of them. Only one
// sets their number: the manifest or an autoscaler.
func TestFailuresCostAPart(t *testing.T) {
	each(t, func(t *testing.T, c *cluster) {
		running := 0
		for _, o := range c.objects {
			var name string
			var replicas *int32
			var spec corev1.PodTemplateSpec
			switch o := o.(type) {
			case *appsv1.Deployment:
				name, replicas, spec = "Deployment/"+o.Name, o.Spec.Replicas, o.Spec.Template
			case *appsv1.StatefulSet:
				name, replicas, spec = "StatefulSet/"+o.Name, o.Spec.Replicas, o.Spec.Template
			default:
				continue
			}
			running++
			c.judgePlaces(t, name, spec)
			scaler := c.scaler(name)
			if scaler != nil && replicas != nil || scaler == nil && (replicas == nil || *replicas < 2) ||
				scaler != nil && (scaler.Spec.MinReplicas == nil || *scaler.Spec.MinReplicas < 2) {
				t.Errorf("%s: who says that there are two at least, and who says how many?", name)
			}
		}
		if running < 3 {
			t.Errorf("%d objects that run on", running)
		}
	})
}

// judgePlaces checks where pods of a template are placed, and how many of them a drain takes at once.
func (c *cluster) judgePlaces(t *testing.T, name string, p corev1.PodTemplateSpec) {
	t.Helper()
	var apart []corev1.PodAffinityTerm
	if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		apart = a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	spread := func(over string) bool {
		return slices.ContainsFunc(apart, func(term corev1.PodAffinityTerm) bool {
			return term.TopologyKey == over && matches(t, term.LabelSelector, p.Labels)
		}) || slices.ContainsFunc(p.Spec.TopologySpreadConstraints,
			func(s corev1.TopologySpreadConstraint) bool {
				return s.TopologyKey == over && s.MaxSkew == 1 && matches(t, s.LabelSelector, p.Labels)
			})
	}
	if !spread(corev1.LabelHostname) || !spread(corev1.LabelTopologyZone) {
		t.Errorf("%s is not spread over nodes and zones", name)
	}
	if !slices.ContainsFunc(c.budgets(), func(b *policyv1.PodDisruptionBudget) bool {
		return matches(t, b.Spec.Selector, p.Labels)
	}) {
		t.Errorf("%s has no PodDisruptionBudget", name)
	}
}

func (c *cluster) budgets() (all []*policyv1.PodDisruptionBudget) {
	for _, o := range c.objects {
		if b, ok := o.(*policyv1.PodDisruptionBudget); ok {
			all = append(all, b)
		}
	}
	return all
}

func (c *cluster) scaler(of string) *autoscalingv2.HorizontalPodAutoscaler {
	for _, o := range c.objects {
		if h, ok := o.(*autoscalingv2.HorizontalPodAutoscaler); ok &&
			h.Spec.ScaleTargetRef.Kind+"/"+h.Spec.ScaleTargetRef.Name == of {
			return h
		}
	}
	return nil
}

// The autoscaler of the dispatchers uses the metric of the adapter's rule. cmd/verifyd checks that its series
// exists.
func TestAdapterMakesTheMetric(t *testing.T) {
	var adapter struct {
		ExternalRules []struct {
			SeriesQuery  string                  `json:"seriesQuery"`
			MetricsQuery string                  `json:"metricsQuery"`
			Name         struct{ As string }     `json:"name"`
			Resources    struct{ Overrides any } `json:"resources"`
		} `json:"externalRules"`
	}
	strictly(t, "prometheus-adapter.yaml", &adapter)
	each(t, func(t *testing.T, c *cluster) {
		scaler := c.scaler("Deployment/verifyd-dispatcher")
		if scaler == nil || len(scaler.Spec.Metrics) != 1 || scaler.Spec.Metrics[0].External == nil ||
			len(adapter.ExternalRules) != 1 ||
			scaler.Spec.Metrics[0].External.Metric.Name != adapter.ExternalRules[0].Name.As {
			t.Fatalf("the autoscaler %+v goes by another metric than %+v", scaler, adapter)
		}
	})
}

// Nothing enters or leaves a pod except what a policy names, and the pods that talk have one.
func TestEveryPodHasItsPolicy(t *testing.T) {
	each(t, func(t *testing.T, c *cluster) {
		closed, of := false, map[string]int{}
		for _, o := range c.objects {
			p, ok := o.(*networkingv1.NetworkPolicy)
			if !ok {
				continue
			}
			all := len(p.Spec.PodSelector.MatchLabels)+len(p.Spec.PodSelector.MatchExpressions) == 0
			rules := len(p.Spec.Ingress) + len(p.Spec.Egress)
			closed = closed || all && len(p.Spec.PolicyTypes) == 2 && rules == 0
			for _, pod := range c.pods {
				if !all && matches(t, &p.Spec.PodSelector, pod.Labels) {
					of[pod.of]++
				}
			}
		}
		if !closed {
			t.Error("what no policy names is let through")
		}
		for _, pod := range c.pods {
			if of[pod.of] == 0 {
				t.Errorf("%s has no policy of its own", pod.of)
			}
		}
	})
}

// The address that the settings name is the one that the Ingress has, and an overlay's images are of a
// version.
func TestOverlayReachesEverything(t *testing.T) {
	each(t, func(t *testing.T, c *cluster) {
		base := ""
		for _, m := range c.settings {
			base = m.Data["VERIFYD_BASE_URL"]
			if m.Name == "verifyd" {
				t.Error("the settings' name has no hash, by which pods learn of a change")
			}
		}
		for _, o := range c.objects {
			in, ok := o.(*networkingv1.Ingress)
			if !ok {
				continue
			}
			for _, host := range []string{in.Spec.Rules[0].Host, in.Spec.TLS[0].Hosts[0]} {
				if base != "https://"+host {
					t.Errorf("the Ingress answers for %s, and the settings say %s", host, base)
				}
			}
		}
		for _, p := range c.pods {
			for _, k := range p.Spec.Containers {
				if own := strings.HasSuffix(k.Image, ":latest"); own != strings.HasSuffix(t.Name(), "/base") {
					t.Errorf("%s runs %s", p.of, k.Image)
				}
			}
		}
	})
}
