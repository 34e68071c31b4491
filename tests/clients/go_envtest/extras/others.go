package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

var valves = v2.WithResource("valves")

func configuration(version schema.GroupVersion, name string, spec map[string]any) runtime.ApplyConfiguration {
	wanted := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	wanted.SetGroupVersionKind(version.WithKind("Valve"))
	wanted.SetName(name)
	wanted.SetNamespace("default")
	return client.ApplyConfigurationFromUnstructured(wanted)
}

func scaled(ctx context.Context, api client.Client, config *rest.Config) {
	valve, size := &Valve{}, &autoscalingv1.Scale{}
	must(api.Get(ctx, outlet, valve))
	must(api.SubResource("scale").Get(ctx, valve, size))
	size.Spec.Replicas = 3
	must(api.SubResource("scale").Update(ctx, valve, client.WithSubResourceBody(size)))
	mapper := got(apiutil.NewDynamicRESTMapper(config, got(rest.HTTPClientFor(config))))
	kinds := scale.NewDiscoveryScaleKindResolver(discovery.NewDiscoveryClientForConfigOrDie(config))
	scales := got(scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc, kinds)).Scales("default")
	found := got(scales.Get(ctx, valves.GroupResource(), outlet.Name, metav1.GetOptions{}))
	check(found.Spec.Replicas == 3, found)
	found.Spec.Replicas = 4
	got(scales.Update(ctx, valves.GroupResource(), found, metav1.UpdateOptions{}))
	patch := []byte(`{"spec":{"replicas":5}}`)
	got(scales.Patch(ctx, valves, outlet.Name, types.MergePatchType, patch, metav1.PatchOptions{}))
	must(api.Get(ctx, outlet, valve))
	check(*valve.Spec.Replicas == 5, valve)
	fmt.Println("scaled")
}

// typed is a client as client-gen makes it.
func typed(ctx context.Context, config *rest.Config) {
	scheme, own := runtime.NewScheme(), rest.CopyConfig(config)
	addToScheme(scheme)
	own.GroupVersion, own.APIPath = &v1, "/apis"
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	old := gentype.NewClientWithList[*OldValve, *OldValveList](
		"valves", got(rest.RESTClientFor(own)), runtime.NewParameterCodec(scheme), "default",
		func() *OldValve { return &OldValve{} }, func() *OldValveList { return &OldValveList{} })
	page := got(old.List(ctx, metav1.ListOptions{Limit: 1}))
	check(len(page.Items) == 1 && page.Continue != "", page)
	must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		valve := got(old.Get(ctx, outlet.Name, metav1.GetOptions{}))
		valve.Status.Replicas = 2
		_, err := old.UpdateStatus(ctx, valve, metav1.UpdateOptions{})
		return err
	}))
	fmt.Println("typed client")
}

func informers(ctx context.Context, config *rest.Config) {
	metas := got(metadata.NewForConfig(config))
	south := func(o *metav1.ListOptions) { o.FieldSelector = "spec.zone=south" }
	whole := dynamicinformer.NewFilteredDynamicSharedInformerFactory(got(dynamic.NewForConfig(config)), 0, "default", south)
	heads := metadatainformer.NewSharedInformerFactory(metas, 0)
	objects, partials := whole.ForResource(v1.WithResource("valves")), heads.ForResource(valves)
	objects.Informer()
	partials.Informer()
	stop := make(chan struct{})
	whole.Start(stop)
	heads.Start(stop)
	whole.WaitForCacheSync(stop)
	heads.WaitForCacheSync(stop)
	check(len(objects.Informer().GetStore().List()) == 1 && len(partials.Informer().GetStore().List()) == 2)
	patch := []byte(`{"metadata":{"annotations":{"a":"b"}}}`)
	got(metas.Resource(valves).Namespace("default").Patch(ctx, outlet.Name, types.MergePatchType, patch, metav1.PatchOptions{}))
	for _, lister := range []cache.GenericLister{objects.Lister(), partials.Lister()} {
		eventually("the informer follows", func() (bool, error) {
			found, err := lister.ByNamespace("default").Get(outlet.Name)
			return err == nil && found.(metav1.Object).GetAnnotations()["a"] == "b", err
		})
	}
	close(stop)
	whole.Shutdown()
	heads.Shutdown()
	fmt.Println("informers without types")
}

func watches(ctx context.Context, config *rest.Config) {
	resource := got(dynamic.NewForConfig(config)).Resource(valves).Namespace("default")
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return resource.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return resource.Watch(ctx, o)
		},
	}
	listed := got(resource.List(ctx, metav1.ListOptions{}))
	retried := got(watchtools.NewRetryWatcherWithContext(ctx, listed.GetResourceVersion(), source))
	patch := []byte(`[{"op":"replace","path":"/spec/flow","value":9}]`)
	got(resource.Patch(ctx, outlet.Name, types.JSONPatchType, patch, metav1.PatchOptions{}))
	event := <-retried.ResultChan()
	check(event.Type == watch.Modified, event)
	retried.Stop()
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	got(watchtools.UntilWithSync(limited, source, &unstructured.Unstructured{}, nil, func(event watch.Event) (bool, error) {
		flow, _, err := unstructured.NestedInt64(event.Object.(*unstructured.Unstructured).Object, "spec", "flow")
		return flow == 9, err
	}))
	fmt.Println("watched until a condition")
}

func discovered(config *rest.Config) {
	kept := memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(config))
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(kept)
	short := restmapper.NewShortcutExpander(mapper, kept, nil)
	check(got(short.ResourceFor(schema.GroupVersionResource{Resource: "va"})) == valves)
	all, known := restmapper.NewDiscoveryCategoryExpander(kept).Expand("all")
	check(known && slices.Contains(all, valves.GroupResource()), all)
	got(kept.ServerPreferredResources())
	got(kept.OpenAPISchema())
	document := got(kept.OpenAPIV3().Paths())["apis/"+v2.String()]
	got(document.Schema(runtime.ContentTypeJSON))
	got(document.Schema("application/com.github.proto-openapi.spec.v3.v1.0+protobuf"))
	fmt.Println("discovered")
}
