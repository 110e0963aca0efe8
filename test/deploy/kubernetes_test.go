package deploy_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// manifest has the objects of a file, as types of Kubernetes.
type manifest struct {
	configMaps  map[string]corev1.ConfigMap
	claims      map[string]corev1.PersistentVolumeClaim
	deployments []appsv1.Deployment
	services    []corev1.Service
	policies    []networkingv1.NetworkPolicy
	pod         corev1.PodTemplateSpec // of the deployment
	lbd         corev1.Container       // of the pod
}

// strict decodes a document, and rejects unknown fields.
func strict[T any](t *testing.T, document string) (v T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(document), &v); err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
	return v
}

func manifests(t *testing.T, file string) (m manifest) {
	t.Helper()
	m.configMaps, m.claims = map[string]corev1.ConfigMap{}, map[string]corev1.PersistentVolumeClaim{}
	for document := range strings.SplitSeq(read(t, file), "\n---\n") {
		var kind metav1.TypeMeta
		must(t, yaml.Unmarshal([]byte(document), &kind))
		switch kind.APIVersion + " " + kind.Kind {
		case "v1 ConfigMap":
			c := strict[corev1.ConfigMap](t, document)
			m.configMaps[c.Name] = c
		case "v1 PersistentVolumeClaim":
			c := strict[corev1.PersistentVolumeClaim](t, document)
			m.claims[c.Name] = c
		case "v1 Service":
			m.services = append(m.services, strict[corev1.Service](t, document))
		case "apps/v1 Deployment":
			m.deployments = append(m.deployments, strict[appsv1.Deployment](t, document))
		case "networking.k8s.io/v1 NetworkPolicy":
			m.policies = append(m.policies, strict[networkingv1.NetworkPolicy](t, document))
		default:
			t.Errorf("%s: unknown type %s %s", file, kind.APIVersion, kind.Kind)
		}
	}
	if len(m.deployments) != 1 {
		t.Fatalf("%s has %d deployments", file, len(m.deployments))
	}
	m.pod = m.deployments[0].Spec.Template
	containers := slices.Concat(m.pod.Spec.InitContainers, m.pod.Spec.Containers)
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "lbd" })
	if i < 0 {
		t.Fatalf("%s: no container is lbd", file)
	}
	m.lbd = containers[i]
	return m
}

// TestManifests checks each manifest.
func TestManifests(t *testing.T) {
	if served(t, "/no-such") || served(t, "/v1/leases/done") { // the second is POST only
		t.Fatal("served is always true")
	}
	files := []string{"deploy/kubernetes/deployment.yaml", "deploy/kubernetes/fleet.yaml", "deploy/kubernetes/sidecar.yaml"}
	found, err := filepath.Glob(filepath.Join(root, "deploy/kubernetes/*.yaml"))
	if err != nil || len(found) != len(files) {
		t.Errorf("tested are %v of %v (%v)", files, found, err)
	}
	for _, file := range files {
		m := manifests(t, file)
		for name, check := range map[string]func(*testing.T, manifest){
			"References": references, "Arguments": arguments, "Probes": probes, "SidecarStays": sidecarStays, "MemoryLimit": memoryLimit,
			"PodsAreConfined": podsAreConfined, "GracePeriod": gracePeriod, "OneDaemonOnTheData": oneDaemonOnTheData,
			"ResourcesAreValid": resourcesAreValid, "Scraped": scraped,
		} {
			t.Run(filepath.Base(file)+"/"+name, func(t *testing.T) { check(t, m) })
		}
	}
}

// references: references within a file have a target.
func references(t *testing.T, m manifest) {
	selects := func(what string, selector map[string]string) {
		for k, v := range selector {
			if m.pod.Labels[k] != v {
				t.Errorf("%s selects %s=%s, which is no label of the pods", what, k, v)
			}
		}
	}
	selects("the deployment", m.deployments[0].Spec.Selector.MatchLabels)
	ports := map[intstr.IntOrString]bool{}
	for _, p := range m.lbd.Ports {
		ports[intstr.FromString(p.Name)], ports[intstr.FromInt32(p.ContainerPort)] = true, true
	}
	for _, s := range m.services {
		selects("the service", s.Spec.Selector)
		for _, p := range s.Spec.Ports {
			if !ports[p.TargetPort] {
				t.Errorf("the service's port %s is no port of lbd", p.TargetPort.String())
			}
		}
	}
	for _, n := range m.policies {
		selects("the policy", n.Spec.PodSelector.MatchLabels)
		for _, rule := range n.Spec.Ingress {
			for _, p := range rule.Ports {
				if !ports[*p.Port] {
					t.Errorf("the policy's port %s is no port of lbd", p.Port.String())
				}
			}
		}
	}
	volumes := map[string]bool{}
	for _, v := range m.pod.Spec.Volumes {
		volumes[v.Name] = true
		if c := v.ConfigMap; c != nil && m.configMaps[c.Name].Name == "" {
			t.Errorf("no ConfigMap is called %s", c.Name)
		}
		if c := v.PersistentVolumeClaim; c != nil && m.claims[c.ClaimName].Name == "" {
			t.Errorf("no claim is called %s", c.ClaimName)
		}
	}
	for _, c := range slices.Concat(m.pod.Spec.InitContainers, m.pod.Spec.Containers) {
		for _, v := range c.VolumeMounts {
			if !volumes[v.Name] {
				t.Errorf("%s mounts %s, which is no volume", c.Name, v.Name)
			}
		}
	}
}

// arguments: lbd accepts the arguments, and their paths are mounted, writable if lbd writes.
func arguments(t *testing.T, m manifest) {
	c := m.lbd
	var env []string
	for _, e := range c.Env {
		env = append(env, e.Name+"="+e.Value)
	}
	accepts(t, c.Args, env)
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		if probe == nil || probe.Exec == nil {
			continue
		}
		if command := probe.Exec.Command; command[0] != "/lbd" {
			t.Errorf("the image has no %s", command[0])
		} else {
			accepts(t, command[1:], nil)
			probed, _ := flagValue(command, "listen")
			if listen, _ := flagValue(c.Args, "listen"); probed != listen {
				t.Errorf("the probe asks %s, where lbd listens on %s", probed, listen)
			}
		}
	}
	written := func(path string, readOnly bool) {
		if !slices.ContainsFunc(c.VolumeMounts, func(v corev1.VolumeMount) bool { return v.MountPath == path && v.ReadOnly == readOnly }) {
			t.Errorf("lbd has no volume at %s with readOnly: %v", path, readOnly)
		}
	}
	if data, ok := flagValue(c.Args, "data"); !ok {
		t.Error("lbd keeps its data in the image")
	} else if data != "" {
		written(data, false)
	}
	if resources, ok := flagValue(c.Args, "resources"); ok {
		written(resources, true)
	}
	for _, flag := range []string{"store-ca", "store-cert", "store-key"} {
		if file, ok := flagValue(c.Args, flag); ok {
			written(filepath.Dir(file), true)
		}
	}
	if store, ok := flagValue(c.Args, "store"); ok == (len(m.configMaps) > 0) {
		t.Errorf("the store is %q, and there are %d ConfigMaps of resources", store, len(m.configMaps))
	}
	listen, _ := flagValue(c.Args, "listen")
	if socket, ok := strings.CutPrefix(listen, "unix:"); ok {
		written(filepath.Dir(socket), false)
	} else if len(c.Ports) != 1 || listen != "0.0.0.0:8080" || c.Ports[0].ContainerPort != 8080 {
		t.Errorf("lbd listens on %s, with the ports %v", listen, c.Ports)
	}
}

func probes(t *testing.T, m manifest) {
	c := m.lbd
	if c.StartupProbe == nil || c.LivenessProbe == nil {
		t.Error("a probe is missing")
	}
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		if probe == nil || probe.HTTPGet == nil {
			continue
		}
		if !served(t, probe.HTTPGet.Path) {
			t.Errorf("lbd does not answer %s", probe.HTTPGet.Path)
		}
		if len(c.Ports) == 0 || probe.HTTPGet.Port != intstr.FromString(c.Ports[0].Name) {
			t.Errorf("no port is called %s", probe.HTTPGet.Port.String())
		}
	}
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe} {
		if probe != nil && !asks(probe, "/readyz") {
			t.Errorf("%+v does not ask whether lbd is ready", probe.ProbeHandler)
		}
	}
	// A daemon that is not ready, for example because it drains, must not be killed.
	if !asks(c.LivenessProbe, "/livez") {
		t.Errorf("%+v does not ask whether lbd is alive", c.LivenessProbe.ProbeHandler)
	}
	if has := c.StartupProbe.PeriodSeconds * c.StartupProbe.FailureThreshold; has < 60 {
		t.Errorf("lbd has %d s to load its store and files", has)
	}
}

// asks reports whether a probe checks a path, directly or with lbd healthcheck.
func asks(probe *corev1.Probe, path string) bool {
	if probe.HTTPGet != nil {
		return probe.HTTPGet.Path == path
	}
	return probe.Exec != nil && slices.Contains(probe.Exec.Command, "--live") == (path == "/livez")
}

// sidecarStays: a container that starts before the application and does not end must be a sidecar.
func sidecarStays(t *testing.T, m manifest) {
	for _, c := range m.pod.Spec.InitContainers {
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			t.Errorf("the application waits until %s ends", c.Name)
		}
	}
}

// memoryLimit: GOMEMLIMIT leaves memory for data outside of the heap, and is not so low that the
// garbage collector runs continuously.
func memoryLimit(t *testing.T, m manifest) {
	c := m.lbd
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
	if i < 0 {
		t.Fatal("there is no GOMEMLIMIT")
	}
	soft, err := resource.ParseQuantity(strings.TrimSuffix(c.Env[i].Value, "B")) // Go's MiB is Kubernetes' Mi
	must(t, err)
	if part := soft.AsApproximateFloat64() / c.Resources.Limits.Memory().AsApproximateFloat64(); part < 0.65 || part > 0.75 {
		t.Errorf("GOMEMLIMIT is %.2f of the limit, and not 0.7, as lbd chooses by itself", part)
	}
}

// podsAreConfined: pods meet the restricted standard of Kubernetes, and use the user of the image.
func podsAreConfined(t *testing.T, m manifest) {
	if m.pod.Spec.AutomountServiceAccountToken == nil || *m.pod.Spec.AutomountServiceAccountToken {
		t.Error("the pod gets a token that it does not need")
	}
	s := m.pod.Spec.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod's security context is %+v", s)
	}
	for _, c := range slices.Concat(m.pod.Spec.InitContainers, m.pod.Spec.Containers) {
		s := c.SecurityContext
		if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: security context %+v", c.Name, s)
		}
		if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() {
			t.Errorf("%s: resources %+v", c.Name, c.Resources)
		}
	}
	c := m.lbd
	if c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
		t.Error("lbd can write its image")
	}
	for _, id := range []*int64{c.SecurityContext.RunAsUser, m.pod.Spec.SecurityContext.RunAsUser} {
		if id != nil && *id != imageUser {
			t.Errorf("lbd runs as %d, and its image is made for %d", *id, imageUser)
		}
	}
	if g := m.pod.Spec.SecurityContext.FSGroup; g == nil || *g != imageUser {
		t.Errorf("volumes belong to %v", g)
	}
}

// gracePeriod: the pod has time to drain before it is killed.
func gracePeriod(t *testing.T, m manifest) {
	c := m.lbd
	drain, _ := flagValue(c.Args, "drain-timeout")
	needed := seconds(t, drain) + 2 // to close what is left
	if delay, ok := flagValue(c.Args, "drain-delay"); ok {
		needed += seconds(t, delay)
	}
	if grace := m.pod.Spec.TerminationGracePeriodSeconds; grace == nil || *grace < needed {
		t.Errorf("lbd may take %d s to end, and has %v", needed, grace)
	}
}

// oneDaemonOnTheData: only one pod at a time uses a volume claim.
func oneDaemonOnTheData(t *testing.T, m manifest) {
	if d := m.deployments[0].Spec; len(m.claims) > 0 && (*d.Replicas != 1 || d.Strategy.Type != appsv1.RecreateDeploymentStrategyType) {
		t.Errorf("%d replicas, strategy %q share one volume", *d.Replicas, d.Strategy.Type)
	}
}

// resourcesAreValid: lbd check accepts the files of the ConfigMaps.
func resourcesAreValid(t *testing.T, m manifest) {
	for _, c := range m.configMaps {
		for _, name := range slices.Sorted(maps.Keys(c.Data)) {
			file := filepath.Join(t.TempDir(), name)
			must(t, os.WriteFile(file, []byte(c.Data[name]), 0o600))
			if out, err := exec.Command(lbd, "check", "--strict", file).CombinedOutput(); err != nil || !strings.Contains(string(out), "usable endpoint") {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
		}
	}
}
