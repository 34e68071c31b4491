// A manager as operators are: leader election, informers that begin with a streamed list, events, server-side apply of
// what it owns, metadata-only reads. It ends when the owned object follows the second change of its owner.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var kind = schema.GroupVersionKind{Group: "stable.example.com", Version: "v1", Kind: "CronTab"}

func crontab(name string) *unstructured.Unstructured {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(kind)
	found.SetName(name)
	found.SetNamespace("default")
	return found
}

type reconciler struct {
	client.Client
	recorder events.EventRecorder
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	found := crontab(request.Name)
	if err := r.Get(ctx, request.NamespacedName, found); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	image, _, _ := unstructured.NestedString(found.Object, "spec", "image")
	owner := metav1apply.OwnerReference().WithAPIVersion(found.GetAPIVersion()).WithKind(found.GetKind()).
		WithName(found.GetName()).WithUID(found.GetUID()).WithController(true)
	wanted := corev1apply.ConfigMap(request.Name, request.Namespace).WithOwnerReferences(owner).
		WithData(map[string]string{"image": image})
	if err := r.Apply(ctx, wanted, client.FieldOwner("story"), client.ForceOwnership); err != nil {
		return ctrl.Result{}, err
	}
	r.recorder.Eventf(found, nil, corev1.EventTypeNormal, "Applied", "Apply", "image %s", image)
	return ctrl.Result{}, nil
}

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func eventually(what string, condition func() (bool, error)) {
	var last error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ok, err := condition()
		if ok {
			fmt.Println(what)
			return
		}
		last = err
	}
	must(fmt.Errorf("%s: not in time: %w", what, last))
}

func main() {
	ctrl.SetLogger(zap.New())
	ctx, stop := context.WithCancel(context.Background())
	config := ctrl.GetConfigOrDie()
	manager, err := ctrl.NewManager(config, ctrl.Options{
		LeaderElection: true, LeaderElectionID: "story", LeaderElectionNamespace: "default",
		LeaderElectionReleaseOnCancel: true, Metrics: server.Options{BindAddress: "0"},
	})
	must(err)
	watched := &unstructured.Unstructured{}
	watched.SetGroupVersionKind(kind)
	must(ctrl.NewControllerManagedBy(manager).For(watched).Owns(&corev1.ConfigMap{}).
		Complete(&reconciler{manager.GetClient(), manager.GetEventRecorder("story")}))
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	select {
	case <-manager.Elected():
		fmt.Println("elected")
	case err := <-ended:
		must(fmt.Errorf("ended before it was elected: %w", err))
	}
	if len(os.Args) > 1 && os.Args[1] == "outlast" { // it goes on whatever the server does, and ends if it may not lead
		must(<-ended)
		return
	}
	story(ctx, manager.GetClient(), manager.GetAPIReader())
	stop()
	must(<-ended)
	fmt.Println("done")
}

func story(ctx context.Context, cached client.Client, direct client.Reader) {
	key := types.NamespacedName{Namespace: "default", Name: "managed"}
	object := crontab(key.Name)
	must(unstructured.SetNestedField(object.Object, "* * * * */5", "spec", "cronSpec"))
	must(unstructured.SetNestedField(object.Object, "first", "spec", "image"))
	must(cached.Create(ctx, object))
	owned := &corev1.ConfigMap{}
	eventually("owned object applied", func() (bool, error) {
		err := direct.Get(ctx, key, owned)
		return err == nil && owned.Data["image"] == "first", err
	})
	patch := client.MergeFrom(object.DeepCopy())
	must(unstructured.SetNestedField(object.Object, "second", "spec", "image"))
	must(cached.Patch(ctx, object, patch))
	eventually("owned object follows", func() (bool, error) {
		err := cached.Get(ctx, key, owned)
		return err == nil && owned.Data["image"] == "second", err
	})
	must(cached.Delete(ctx, owned))
	eventually("owned object comes back", func() (bool, error) {
		again := &corev1.ConfigMap{}
		err := direct.Get(ctx, key, again)
		return err == nil && again.UID != owned.UID, err
	})
	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(kind)
	must(direct.Get(ctx, key, partial))
	if partial.UID != object.GetUID() {
		must(fmt.Errorf("metadata of another object: %s", partial.UID))
	}
	told := &unstructured.UnstructuredList{}
	told.SetGroupVersionKind(schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "EventList"})
	eventually("event recorded", func() (bool, error) {
		err := direct.List(ctx, told, client.InNamespace("default"))
		for _, event := range told.Items {
			if name, _, _ := unstructured.NestedString(event.Object, "regarding", "name"); name == key.Name {
				return true, nil
			}
		}
		return false, err
	})
	must(cached.Delete(ctx, object))
	eventually("owned object collected", func() (bool, error) {
		err := direct.Get(ctx, key, owned)
		return apierrors.IsNotFound(err), err
	})
}
