// Package kubernetes_test checks the manifests in this folder, as Kustomize renders them: against the types
// of the Kubernetes API, strictly, and for consistency.
package kubernetes_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const namespace = "verifyd"

// made are the objects that operators create from files, by docs/OPERATING.md: secrets, and the configuration
// of the NATS servers.
var made = []string{
	"verifyd-edge", "verifyd-dispatcher", "verifyd-operator", "verifyd-nats", "verifyd-networks",
	"verifyd-tls", "nats",
}

// pod is a pod template with the object that it is of.
type pod struct {
	of string
	corev1.PodTemplateSpec
}

// cluster has the objects of all manifests.
type cluster struct {
	objects  []runtime.Object
	pods     []pod
	names    map[string]bool // kind/name
	settings []*corev1.ConfigMap
}

// decoder accepts the kinds that are used here, and only their fields.
func decoder(t *testing.T) runtime.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme,
		networkingv1.AddToScheme, policyv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// documents splits a file.
func documents(t *testing.T, path string) (docs [][]byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for r := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(b))); ; {
		doc := make([]byte, 1<<20)
		n, err := r.Read(doc)
		if errors.Is(err, io.EOF) {
			return docs
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		docs = append(docs, doc[:n])
	}
}

// overlays are the rendered folders.
var overlays = []string{"base", "example"}

// each checks every overlay.
func each(t *testing.T, judge func(t *testing.T, c *cluster)) {
	for _, folder := range overlays {
		t.Run(folder, func(t *testing.T) { judge(t, load(t, folder)) })
	}
}

// load renders a folder.
func load(t *testing.T, folder string) *cluster {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	c, d := &cluster{names: map[string]bool{}}, decoder(t)
	for _, r := range made.Resources() {
		doc, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		o, kind, err := d.Decode(doc, nil, nil)
		if err != nil {
			t.Errorf("%s %s: %v", r.GetKind(), r.GetName(), err)
			continue
		}
		c.add(t, o, kind.Kind)
	}
	if len(c.objects) < 20 {
		t.Errorf("%d objects", len(c.objects))
	}
	if t.Failed() {
		t.FailNow()
	}
	return c
}

// The files themselves are strict, too, before a tool has read them: no member occurs twice. All are named.
func TestFilesAreStrict(t *testing.T) {
	files, err := filepath.Glob("base/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d manifests: %v", len(files), err)
	}
	var base types.Kustomization
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		for _, doc := range documents(t, file) {
			if _, _, err := decoder(t).Decode(doc, nil, nil); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	strictly(t, "base/kustomization.yaml", &base)
	for _, file := range files {
		name := filepath.Base(file)
		if name != "kustomization.yaml" && !slices.Contains(base.Resources, name) {
			t.Errorf("base/kustomization.yaml does not name %s", name)
		}
	}
}

func strictly(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(b, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func (c *cluster) add(t *testing.T, o runtime.Object, kind string) {
	t.Helper()
	m, ok := o.(metav1.Object)
	if !ok {
		t.Fatalf("%s has no metadata", kind)
	}
	if kind != "Namespace" && m.GetNamespace() != namespace {
		t.Errorf("%s %s is in the namespace %q", kind, m.GetName(), m.GetNamespace())
	}
	key := kind + "/" + m.GetName()
	if c.names[key] {
		t.Errorf("%s is there twice", key)
	}
	c.names[key] = true
	c.objects = append(c.objects, o)
	switch o := o.(type) {
	case *appsv1.Deployment:
		c.workload(t, key, o.Spec.Selector, o.Spec.Template)
	case *appsv1.StatefulSet:
		c.workload(t, key, o.Spec.Selector, o.Spec.Template)
	case *batchv1.Job:
		c.pods = append(c.pods, pod{key, o.Spec.Template})
	case *corev1.ConfigMap:
		c.settings = append(c.settings, o)
	}
}

func (c *cluster) workload(t *testing.T, key string, s *metav1.LabelSelector,
	template corev1.PodTemplateSpec) {
	t.Helper()
	if !matches(t, s, template.Labels) {
		t.Errorf("%s does not select its own pods", key)
	}
	c.pods = append(c.pods, pod{key, template})
}

func matches(t *testing.T, s *metav1.LabelSelector, of map[string]string) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector.Matches(labels.Set(of))
}

// selected returns the pods of a selector; there must be one.
func (c *cluster) selected(t *testing.T, who string, s *metav1.LabelSelector) (pods []pod) {
	t.Helper()
	for _, p := range c.pods {
		if matches(t, s, p.Labels) {
			pods = append(pods, p)
		}
	}
	if len(pods) == 0 {
		t.Errorf("%s selects no pod", who)
	}
	return pods
}

// listens reports whether one of the pods has a port of that name or number.
func listens(pods []pod, port intstr.IntOrString) bool {
	return slices.ContainsFunc(pods, func(p pod) bool {
		return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
			return slices.ContainsFunc(c.Ports, func(has corev1.ContainerPort) bool {
				return port.Type == intstr.String && has.Name == port.StrVal || port.Type == intstr.Int &&
					has.ContainerPort == port.IntVal
			})
		})
	})
}

// Every container is hardened, bounded, and probed at times that are named.
func TestEveryPodIsHardened(t *testing.T) {
	each(t, everyPodIsHardened)
}

func everyPodIsHardened(t *testing.T, c *cluster) {
	t.Helper()
	for _, p := range c.pods {
		s := p.Spec.SecurityContext
		if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil ||
			*s.RunAsUser != 65532 || s.SeccompProfile == nil ||
			s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
			p.Spec.AutomountServiceAccountToken == nil || *p.Spec.AutomountServiceAccountToken ||
			p.Spec.EnableServiceLinks == nil || *p.Spec.EnableServiceLinks {
			t.Errorf("%s: the pod is not hardened", p.of)
		}
		for _, k := range p.Spec.Containers {
			s := k.SecurityContext
			if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
				s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
				s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
				len(s.Capabilities.Add) > 0 {
				t.Errorf("%s: the container %s is not hardened", p.of, k.Name)
			}
			if k.Resources.Limits.Memory().IsZero() || k.Resources.Requests.Cpu().IsZero() ||
				k.Resources.Requests.Memory().IsZero() {
				t.Errorf("%s: the container %s has no limits or asks for nothing", p.of, k.Name)
			}
			if p.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
				continue // a job ends by itself
			}
			for name, probe := range map[string]*corev1.Probe{
				"startup": k.StartupProbe, "readiness": k.ReadinessProbe, "liveness": k.LivenessProbe,
			} {
				if probe == nil || probe.HTTPGet == nil || !listens([]pod{p}, probe.HTTPGet.Port) {
					t.Errorf("%s: the container %s has no %s probe on a port of its own", p.of, k.Name, name)
				} else if min(probe.PeriodSeconds, probe.TimeoutSeconds, probe.FailureThreshold) == 0 {
					t.Errorf("%s: the container %s does not name the times of its %s probe", p.of, k.Name,
						name)
				}
			}
		}
	}
}

// References between objects are correct.
func TestReferencesHold(t *testing.T) {
	each(t, referencesHold)
}

func referencesHold(t *testing.T, c *cluster) {
	t.Helper()
	for _, p := range c.pods {
		c.judgeVolumes(t, p)
	}
	for _, o := range c.objects {
		switch o := o.(type) {
		case *corev1.Service:
			pods := c.selected(t, "Service "+o.Name, &metav1.LabelSelector{MatchLabels: o.Spec.Selector})
			for _, port := range o.Spec.Ports {
				if !listens(pods, port.TargetPort) {
					t.Errorf("Service %s leads to a port %s that nobody has", o.Name,
						port.TargetPort.String())
				}
			}
		case *appsv1.StatefulSet:
			if !c.names["Service/"+o.Spec.ServiceName] {
				t.Errorf("StatefulSet %s names no Service", o.Name)
			}
		case *policyv1.PodDisruptionBudget:
			c.selected(t, "PodDisruptionBudget "+o.Name, o.Spec.Selector)
		case *autoscalingv2.HorizontalPodAutoscaler:
			if to := o.Spec.ScaleTargetRef; !c.names[to.Kind+"/"+to.Name] || to.APIVersion != "apps/v1" {
				t.Errorf("HorizontalPodAutoscaler %s scales %+v", o.Name, to)
			}
		case *networkingv1.Ingress:
			for _, r := range o.Spec.Rules {
				for _, path := range r.HTTP.Paths {
					if !c.names["Service/"+path.Backend.Service.Name] {
						t.Errorf("Ingress %s leads to no Service", o.Name)
					}
				}
			}
		case *networkingv1.NetworkPolicy:
			c.judgePolicy(t, o)
		}
	}
}

// judgeVolumes checks where volumes come from and whether they are mounted.
func (c *cluster) judgeVolumes(t *testing.T, p pod) {
	t.Helper()
	for _, v := range p.Spec.Volumes {
		var from string
		switch {
		case v.Secret != nil:
			from = v.Secret.SecretName
		case v.ConfigMap != nil:
			from = v.ConfigMap.Name
		}
		if !slices.Contains(made, from) {
			t.Errorf("%s: the volume %s comes from %q, which nobody makes", p.of, v.Name, from)
		}
	}
	for _, k := range p.Spec.Containers {
		for _, from := range k.EnvFrom {
			if from.ConfigMapRef == nil || !slices.ContainsFunc(c.settings, func(m *corev1.ConfigMap) bool {
				return m.Name == from.ConfigMapRef.Name
			}) {
				t.Errorf("%s: settings come from nowhere", p.of)
			}
		}
		for _, v := range p.Spec.Volumes {
			if !slices.ContainsFunc(k.VolumeMounts, func(m corev1.VolumeMount) bool {
				return m.Name == v.Name && m.ReadOnly
			}) {
				t.Errorf("%s: the volume %s is not mounted, or may be written", p.of, v.Name)
			}
		}
	}
}

// judgePolicy checks the pods of a policy, its peers, and the ports.
func (c *cluster) judgePolicy(t *testing.T, o *networkingv1.NetworkPolicy) {
	t.Helper()
	who := "NetworkPolicy " + o.Name
	subject := c.selected(t, who, &o.Spec.PodSelector)
	here := func(peers []networkingv1.NetworkPolicyPeer) (pods []pod) {
		for _, p := range peers {
			if p.PodSelector != nil && p.NamespaceSelector == nil {
				pods = append(pods, c.selected(t, who, p.PodSelector)...)
			}
		}
		return pods
	}
	for _, in := range o.Spec.Ingress {
		here(in.From)
		for _, port := range in.Ports {
			if !listens(subject, *port.Port) {
				t.Errorf("%s lets in to a port %s that nobody has", who, port.Port)
			}
		}
	}
	for _, out := range o.Spec.Egress {
		for _, port := range out.Ports {
			if to := here(out.To); len(to) > 0 && !listens(to, *port.Port) {
				t.Errorf("%s lets out to a port %s that nobody has", who, port.Port)
			}
		}
	}
}
