// Command extras is what operators have beyond a first manager: a kind in two versions that controller-runtime's own
// webhook server converts, caches of metadata and of some fields, scales, and client-go's other clients.
package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func got[T any](value T, err error) T {
	must(err)
	return value
}

func check(held bool, told ...any) {
	if !held {
		panic(fmt.Sprintf("%+v", told))
	}
}

func eventually(what string, condition func() (bool, error)) {
	var last error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		ok, err := condition()
		if ok {
			return
		}
		last = err
	}
	panic(fmt.Sprintf("%s: not in time: %v", what, last))
}

func main() {
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	config := ctrl.GetConfigOrDie()
	config.QPS = -1
	scheme := runtime.NewScheme()
	must(clientgoscheme.AddToScheme(scheme))
	addToScheme(scheme)
	hooks := envtest.WebhookInstallOptions{}
	must(hooks.PrepWithoutInstalling())
	definitions := []*apiextensionsv1.CustomResourceDefinition{definition()}
	_, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: definitions, Scheme: scheme, WebhookOptions: hooks})
	must(err)
	manager := operator(config, scheme, hooks)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	check(manager.GetCache().WaitForCacheSync(ctx), "no caches")
	fmt.Println("installed, caches filled")
	api := got(client.New(config, client.Options{Scheme: scheme}))
	versions(ctx, api, manager.GetClient())
	onlyMetadata(ctx, api, manager.GetClient())
	scaled(ctx, api, config)
	applied(ctx, api)
	typed(ctx, config)
	informers(ctx, config)
	watches(ctx, config)
	discovered(config)
	removed(ctx, api)
	stop()
	must(<-ended)
	must(envtest.UninstallCRDs(config, envtest.CRDInstallOptions{CRDs: definitions}))
	must(hooks.Cleanup())
	fmt.Println("done")
}

// operator is a manager that knows valves of the north only, and keeps a config map of each.
func operator(config *rest.Config, scheme *runtime.Scheme, hooks envtest.WebhookInstallOptions) ctrl.Manager {
	north := cache.ByObject{Field: fields.OneTermEqualSelector("spec.zone", "north")}
	manager := got(ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&Valve{}: north}},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: hooks.LocalServingHost, Port: hooks.LocalServingPort, CertDir: hooks.LocalServingCertDir,
		}),
	}))
	must(ctrl.NewWebhookManagedBy(manager, &Valve{}).Complete())
	must(manager.GetFieldIndexer().IndexField(context.Background(), &Valve{}, "spec.flow", func(o client.Object) []string {
		return []string{fmt.Sprint(o.(*Valve).Spec.Flow)}
	}))
	api := got(client.New(config, client.Options{Scheme: scheme}))
	reconciler := reconcile.Func(func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
		var valve Valve
		if err := manager.GetClient().Get(ctx, request.NamespacedName, &valve); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: valve.Name, Namespace: valve.Namespace}}
		if _, err := controllerutil.CreateOrPatch(ctx, api, settings, func() error {
			settings.Data = map[string]string{"flow": fmt.Sprint(valve.Spec.Flow)}
			return controllerutil.SetControllerReference(&valve, settings, scheme)
		}); err != nil {
			return ctrl.Result{}, err
		}
		calls.Add(1)
		before := valve.DeepCopyObject().(*Valve)
		if meta.SetStatusCondition(&valve.Status.Conditions, metav1.Condition{
			Type: "Ready", Status: metav1.ConditionTrue, Reason: "Applied", ObservedGeneration: valve.Generation,
		}) {
			patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
			return ctrl.Result{}, manager.GetClient().Status().Patch(ctx, &valve, patch)
		}
		return ctrl.Result{}, nil
	})
	must(ctrl.NewControllerManagedBy(manager).For(&Valve{}).Owns(&corev1.ConfigMap{}, builder.OnlyMetadata).Complete(reconciler))
	return manager
}

var (
	calls  atomic.Int32
	inlet  = types.NamespacedName{Namespace: "default", Name: "inlet"}
	outlet = types.NamespacedName{Namespace: "default", Name: "outlet"}
)

func versions(ctx context.Context, api, cached client.Client) {
	old := &OldValve{ObjectMeta: metav1.ObjectMeta{Name: inlet.Name, Namespace: inlet.Namespace}}
	old.Spec.Flow, old.Spec.Zone = "5 l/s", "north"
	eventually("the webhook server answers", func() (bool, error) {
		err := api.Create(ctx, old)
		return err == nil, err
	})
	one := int32(1)
	must(api.Create(ctx, &Valve{
		ObjectMeta: metav1.ObjectMeta{Name: outlet.Name, Namespace: outlet.Namespace},
		Spec:       ValveSpec{Flow: 7, Zone: "south", Replicas: &one},
	}))
	var valve Valve
	eventually("the condition", func() (bool, error) {
		err := cached.Get(ctx, inlet, &valve)
		return err == nil && meta.IsStatusConditionTrue(valve.Status.Conditions, "Ready"), err
	})
	check(valve.Spec.Flow == 5, valve)
	fmt.Println("converted and reconciled")
	var known, indexed, selected ValveList
	must(cached.List(ctx, &known))
	must(cached.List(ctx, &indexed, client.MatchingFields{"spec.flow": "5"}))
	must(api.List(ctx, &selected, client.MatchingFields{"spec.zone": "south"}))
	check(len(known.Items) == 1 && len(indexed.Items) == 1 && len(selected.Items) == 1, known, indexed, selected)
	fmt.Println("selected by fields")
}

func onlyMetadata(ctx context.Context, api, cached client.Client) {
	settings, partial := &corev1.ConfigMap{}, &metav1.PartialObjectMetadata{}
	must(api.Get(ctx, inlet, settings))
	before := calls.Load()
	must(api.Delete(ctx, settings))
	eventually("the owned object comes back", func() (bool, error) {
		err := api.Get(ctx, inlet, settings)
		return err == nil && calls.Load() > before, err
	})
	partial.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	eventually("metadata of it", func() (bool, error) {
		err := cached.Get(ctx, inlet, partial)
		return err == nil && partial.UID == settings.UID, err
	})
	some := &metav1.PartialObjectMetadataList{}
	some.SetGroupVersionKind(v1.WithKind("ValveList"))
	must(api.List(ctx, some, client.InNamespace("default")))
	check(len(some.Items) == 2, some)
	one := some.Items[0]
	one.SetGroupVersionKind(v1.WithKind("Valve"))
	was := one.DeepCopy()
	one.Labels = map[string]string{"patched": "by-metadata"}
	must(api.Patch(ctx, &one, client.MergeFrom(was)))
	fmt.Println("only metadata")
}

func applied(ctx context.Context, api client.Client) {
	wanted := configuration(v1, outlet.Name, map[string]any{"flow": "8 l/s"})
	err := api.Apply(ctx, wanted, client.FieldOwner("extras-apply"))
	check(apierrors.IsConflict(err), err)
	must(api.Apply(ctx, wanted, client.FieldOwner("extras-apply"), client.ForceOwnership))
	var valve Valve
	must(api.Get(ctx, outlet, &valve))
	check(valve.Spec.Flow == 8, valve)
	fmt.Println("applied in the other version")
}

func removed(ctx context.Context, api client.Client) {
	must(api.DeleteAllOf(ctx, &Valve{}, client.InNamespace("default")))
	eventually("what was owned is gone", func() (bool, error) {
		err := api.Get(ctx, inlet, &corev1.ConfigMap{})
		return apierrors.IsNotFound(err), err
	})
	fmt.Println("removed with what they own")
}
