// Package envtest is the suite of a small operator, written as any is: envtest starts a control plane, a manager runs
// the reconciler, and specs talk to it. Nothing in it knows which API server it got.
package envtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const finalizer = "stable.example.com/cleanup"

var (
	environment *envtest.Environment
	config      *rest.Config
	k8s         client.Client
	cleaned     = make(chan string, 16)
)

type CronTabSpec struct {
	CronSpec string `json:"cronSpec"`
	Image    string `json:"image,omitempty"`
	Replicas *int32 `json:"replicas,omitempty"`
}

type CronTabStatus struct {
	Phase              string `json:"phase,omitempty"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
}

type CronTab struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              CronTabSpec   `json:"spec,omitempty"`
	Status            CronTabStatus `json:"status,omitempty"`
}

type CronTabList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CronTab `json:"items"`
}

func (in *CronTab) DeepCopyObject() runtime.Object {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if in.Spec.Replicas != nil {
		replicas := *in.Spec.Replicas
		out.Spec.Replicas = &replicas
	}
	return &out
}

func (in *CronTabList) DeepCopyObject() runtime.Object {
	out := *in
	out.Items = nil
	for i := range in.Items {
		out.Items = append(out.Items, *in.Items[i].DeepCopyObject().(*CronTab))
	}
	return &out
}

type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var crontab CronTab
	if err := r.Get(ctx, request.NamespacedName, &crontab); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !crontab.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(&crontab, finalizer) {
			cleaned <- crontab.Name
			return ctrl.Result{}, r.Update(ctx, &crontab)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(&crontab, finalizer) {
		return ctrl.Result{}, r.Update(ctx, &crontab)
	}
	if crontab.Status.ObservedGeneration == crontab.Generation {
		return ctrl.Result{}, nil
	}
	crontab.Status = CronTabStatus{Phase: "Scheduled", ObservedGeneration: crontab.Generation}
	return ctrl.Result{}, r.Status().Update(ctx, &crontab)
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(zap.New(zap.UseDevMode(true)))
	environment = &envtest.Environment{CRDDirectoryPaths: []string{"crds"}, ErrorIfCRDPathMissing: true}
	environment.WebhookInstallOptions.MutatingWebhooks = []*admissionv1.MutatingWebhookConfiguration{imageHook()}
	began := time.Now()
	var err error
	if config, err = environment.Start(); err != nil {
		println("envtest does not start:", err.Error())
		os.Exit(1)
	}
	println("ready after", time.Since(began).Milliseconds(), "ms")
	code := run(m)
	if err := environment.Stop(); err != nil {
		println("envtest does not stop:", err.Error())
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) int {
	scheme := runtime.NewScheme()
	group := schema.GroupVersion{Group: "stable.example.com", Version: "v1"}
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		panic(err)
	}
	scheme.AddKnownTypes(group, &CronTab{}, &CronTabList{})
	metav1.AddToGroupVersion(scheme, group)
	hooks := environment.WebhookInstallOptions
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: hooks.LocalServingHost, Port: hooks.LocalServingPort, CertDir: hooks.LocalServingCertDir,
		}),
	})
	if err != nil {
		panic(err)
	}
	manager.GetWebhookServer().Register("/mutate", &webhook.Admission{Handler: admission.HandlerFunc(setImage)})
	if err := ctrl.NewControllerManagedBy(manager).For(&CronTab{}).Complete(&reconciler{manager.GetClient()}); err != nil {
		panic(err)
	}
	if k8s, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	code := m.Run()
	stop()
	if err := <-ended; err != nil {
		println("the manager failed:", err.Error())
		code = 1
	}
	return code
}

// imageHook is a configuration as manifests have it: envtest puts an address of its own in the place of the service.
func imageHook() *admissionv1.MutatingWebhookConfiguration {
	path, none, fail := "/mutate", admissionv1.SideEffectClassNone, admissionv1.Fail
	return &admissionv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: "images"},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "images.stable.example.com",
			ClientConfig: admissionv1.WebhookClientConfig{
				Service: &admissionv1.ServiceReference{Namespace: "system", Name: "webhook-service", Path: &path},
			},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{
					APIGroups: []string{"stable.example.com"}, APIVersions: []string{"v1"}, Resources: []string{"crontabs"},
				},
			}},
			ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"image": "theirs"}},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             &none,
			FailurePolicy:           &fail,
		}},
	}
}

func setImage(_ context.Context, request admission.Request) admission.Response {
	if strings.HasPrefix(request.Name, "refused") {
		return admission.Denied("not this one")
	}
	return admission.Patched("", jsonpatch.NewOperation("add", "/spec/image", "of-the-webhook"))
}

func eventually(t *testing.T, what string, condition func() (bool, error)) {
	t.Helper()
	var last error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ok, err := condition()
		if ok {
			return
		}
		last = err
	}
	t.Fatalf("%s: not in time: %v", what, last)
}

func crontab(name, namespace string) *CronTab {
	return &CronTab{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       CronTabSpec{CronSpec: "* * * * */5"},
	}
}

func TestReconcileStatusAndFinalizers(t *testing.T) {
	ctx, key := context.Background(), types.NamespacedName{Namespace: "default", Name: "first"}
	if err := k8s.Create(ctx, crontab(key.Name, key.Namespace)); err != nil {
		t.Fatal(err)
	}
	var seen CronTab
	eventually(t, "the status", func() (bool, error) {
		err := k8s.Get(ctx, key, &seen)
		return err == nil && seen.Status.Phase == "Scheduled" && seen.Status.ObservedGeneration == seen.Generation, err
	})
	if seen.Spec.Image != "nginx:latest" || !controllerutil.ContainsFinalizer(&seen, finalizer) {
		t.Fatalf("no default or no finalizer: %+v", seen)
	}
	before := seen.Generation
	replicas := int32(3)
	patch := client.MergeFrom(seen.DeepCopyObject().(client.Object))
	seen.Spec.Replicas = &replicas
	if err := k8s.Patch(ctx, &seen, patch); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next generation", func() (bool, error) {
		err := k8s.Get(ctx, key, &seen)
		return err == nil && seen.Generation == before+1 && seen.Status.ObservedGeneration == seen.Generation, err
	})
	if err := k8s.Delete(ctx, &seen); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end", func() (bool, error) {
		err := k8s.Get(ctx, key, &seen)
		return apierrors.IsNotFound(err), err
	})
	if name := <-cleaned; name != key.Name {
		t.Fatalf("cleaned up %s", name)
	}
}

func TestWebhooks(t *testing.T) {
	ctx := context.Background()
	made := crontab("mutated", "default")
	made.Labels = map[string]string{"image": "theirs"}
	eventually(t, "the webhook is called", func() (bool, error) {
		err := k8s.Create(ctx, made)
		return err == nil, err
	})
	if made.Spec.Image != "of-the-webhook" {
		t.Fatalf("not mutated: %+v", made.Spec)
	}
	refused := crontab("refused", "default")
	refused.Labels = made.Labels
	if err := k8s.Create(ctx, refused); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "not this one") {
		t.Fatalf("not refused: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	ctx := context.Background()
	wrong := crontab("wrong", "default")
	wrong.Spec.CronSpec = "now and then"
	err := k8s.Create(ctx, wrong)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.cronSpec in body should match") {
		t.Fatalf("not refused as invalid: %v", err)
	}
	if err := k8s.Create(ctx, crontab("nowhere", "no-such-namespace")); !apierrors.IsNotFound(err) {
		t.Fatalf("created in a namespace that is not there: %v", err)
	}
	if err := k8s.Create(ctx, crontab("stale", "default")); err != nil {
		t.Fatal(err)
	}
	var first, second CronTab
	key := types.NamespacedName{Namespace: "default", Name: "stale"}
	eventually(t, "the status", func() (bool, error) {
		err := k8s.Get(ctx, key, &first)
		return err == nil && first.Status.Phase != "", err
	})
	second = *first.DeepCopyObject().(*CronTab)
	first.Spec.Image = "one"
	if err := k8s.Update(ctx, &first); err != nil {
		t.Fatal(err)
	}
	second.Spec.Image = "two"
	if err := k8s.Update(ctx, &second); !apierrors.IsConflict(err) {
		t.Fatalf("no conflict: %v", err)
	}
}

func TestDeletedNamespacesStayTerminating(t *testing.T) {
	ctx := context.Background()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := k8s.Create(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	if err := k8s.Create(ctx, crontab("inside", namespace.Name)); err != nil {
		t.Fatal(err)
	}
	var all CronTabList
	if err := k8s.List(ctx, &all, client.InNamespace(namespace.Name)); err != nil || len(all.Items) != 1 {
		t.Fatalf("%v: %+v", err, all.Items)
	}
	if err := k8s.Delete(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	if err := k8s.Get(ctx, types.NamespacedName{Name: namespace.Name}, namespace); err != nil {
		t.Fatal(err)
	}
	if namespace.Status.Phase != corev1.NamespaceTerminating {
		t.Fatalf("phase %q: no controller of namespaces runs under envtest", namespace.Status.Phase)
	}
	if err := k8s.Create(ctx, crontab("late", namespace.Name)); !apierrors.IsForbidden(err) {
		t.Fatalf("a terminating namespace takes a new object: %v", err)
	}
}

func TestUsersByCertificateAndKubectl(t *testing.T) {
	user, err := environment.AddUser(envtest.User{Name: "bob", Groups: []string{"devs"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	bob, err := client.New(user.Config(), client.Options{Scheme: k8s.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	var all CronTabList
	if err := bob.List(context.Background(), &all); err != nil && !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	if _, err := os.Stat(environment.ControlPlane.KubectlPath); errors.Is(err, os.ErrNotExist) {
		t.Skip("no kubectl among the assets")
	}
	kubectl, err := user.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := kubectl.Run("version", "-o", "json")
	if err != nil {
		var ended *exec.ExitError
		t.Fatalf("%v %v", err, errors.As(err, &ended))
	}
	text := new(strings.Builder)
	buffer := make([]byte, 1<<16)
	for n, err := out.Read(buffer); n > 0; n, err = out.Read(buffer) {
		text.Write(buffer[:n])
		if err != nil {
			break
		}
	}
	if !strings.Contains(text.String(), `"serverVersion"`) {
		t.Fatalf("kubectl does not reach the server: %s", text)
	}
}
