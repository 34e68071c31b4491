// What Flux's controllers do with a source: its ResourceManager applies in stages, tells drift, recreates what cannot be
// changed, waits by kstatus and prunes.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/jsondiff"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

const source = `
apiVersion: plant.example.com/v1
kind: Valve
metadata: {name: inlet, namespace: plant}
spec: {flow: 5, kind: ball, ports: [{name: a}, {name: b, size: 7}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: plant}
data: {a: "1"}
---
apiVersion: v1
kind: Namespace
metadata: {name: plant}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: plant}
rules: [{apiGroups: [plant.example.com], resources: [valves], verbs: [get]}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: valves.plant.example.com}
spec:
  group: plant.example.com
  names: {kind: Valve, plural: valves, singular: valve}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              flow: {type: integer, maximum: 100}
              kind: {type: string, x-kubernetes-validations: [{rule: self == oldSelf, message: field is immutable}]}
              replicas: {type: integer}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, size: {type: integer, default: 5}}
          status:
            type: object
            properties:
              observedGeneration: {type: integer}
              conditions:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
                items:
                  type: object
                  required: [type, status]
                  properties: {type: {type: string}, status: {type: string}}
`

const second = `
  - name: v2
    served: true
    storage: false
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              flow: {type: integer, maximum: 100}
              kind: {type: string}
              replicas: {type: integer}
              mode: {type: string, default: auto}
              ports: {type: array, items: {type: object, properties: {name: {type: string}, size: {type: integer}}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func check(what string, held bool, told ...any) {
	if !held {
		must(fmt.Errorf("%s: %v", what, told))
	}
	fmt.Println(what)
}

func read(text string) []*unstructured.Unstructured {
	objects, err := utils.ReadObjects(strings.NewReader(text))
	must(err)
	return objects
}

func of(objects []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	for _, object := range objects {
		if object.GetKind() == kind {
			return object
		}
	}
	panic(kind)
}

// counts tells what became of the objects, as "2 created, 1 unchanged".
func counts(set *ssa.ChangeSet) string {
	grouped := set.ToGroupedMap()
	var told []string
	for _, action := range []ssa.Action{
		ssa.CreatedAction, ssa.ConfiguredAction, ssa.UnchangedAction, ssa.SkippedAction, ssa.DeletedAction,
	} {
		if n := len(grouped[action]); n > 0 {
			told = append(told, fmt.Sprintf("%d %s", n, action))
		}
	}
	return strings.Join(told, ", ")
}

type story struct {
	api      client.Client
	manager  *ssa.ResourceManager
	options  ssa.ApplyOptions
	wait     ssa.WaitOptions
	objects  []*unstructured.Unstructured
	valve    *unstructured.Unstructured // as wanted
	existing *unstructured.Unstructured // as read last
}

func main() {
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	config := ctrl.GetConfigOrDie()
	config.QPS = -1
	transport, err := rest.HTTPClientFor(config)
	must(err)
	mapper, err := apiutil.NewDynamicRESTMapper(config, transport)
	must(err)
	api, err := client.New(config, client.Options{Mapper: mapper})
	must(err)
	owner := ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"}
	it := &story{
		api: api, manager: ssa.NewResourceManager(api, polling.NewStatusPoller(api, mapper, polling.Options{}), owner),
		options: ssa.DefaultApplyOptions(), objects: read(source),
		wait: ssa.WaitOptions{Interval: 50 * time.Millisecond, Timeout: 10 * time.Second},
	}
	it.options.WaitInterval, it.options.WaitTimeout = it.wait.Interval, it.wait.Timeout
	it.valve = of(it.objects, "Valve")
	it.existing = it.valve.DeepCopy()
	it.applies(ctx)
	it.leavesToOthers(ctx)
	it.makesAnew(ctx)
	it.waits(ctx)
	it.moves(ctx)
	it.prunes(ctx)
	fmt.Println("done")
}

func (it *story) read(ctx context.Context) *unstructured.Unstructured {
	must(it.api.Get(ctx, client.ObjectKeyFromObject(it.valve), it.existing))
	return it.existing
}

// merge is a write of somebody else.
func (it *story) merge(ctx context.Context, patch, manager string) {
	change := client.RawPatch(types.MergePatchType, []byte(patch))
	must(it.api.Patch(ctx, it.read(ctx), change, client.FieldOwner(manager)))
}

func (it *story) applies(ctx context.Context) {
	it.manager.SetOwnerLabels(it.objects, "plant", "flux-system")
	set, err := it.manager.ApplyAllStaged(ctx, it.objects, it.options)
	must(err)
	check("applied in stages", counts(set) == "5 created", set)
	set, err = it.manager.ApplyAllStaged(ctx, it.objects, it.options)
	must(err)
	check("nothing drifts", counts(set) == "5 unchanged", set)
	it.merge(ctx, `{"spec":{"flow":9}}`, "kubectl-edit")
	entry, was, would, err := it.manager.Diff(ctx, it.valve.DeepCopy(), ssa.DefaultDiffOptions())
	must(err)
	check("drift is told", entry.Action == ssa.ConfiguredAction && flow(was) == 9 && flow(would) == 5, entry, was, would)
	it.options.Cleanup.FieldManagers = []ssa.FieldManager{
		{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationUpdate},
	}
	set, err = it.manager.ApplyAll(ctx, it.objects, it.options)
	must(err)
	managers := it.read(ctx).GetManagedFields()
	check("drift is corrected, and who made it forgotten", counts(set) == "1 configured, 4 unchanged" &&
		flow(it.existing) == 5 && len(managers) == 1 && managers[0].Operation == "Apply", set, managers)
}

func (it *story) leavesToOthers(ctx context.Context) {
	it.merge(ctx, `{"spec":{"replicas":3}}`, "autoscaler")
	wanted, options := it.valve.DeepCopy(), it.options
	must(unstructured.SetNestedField(wanted.Object, int64(1), "spec", "replicas"))
	options.DriftIgnoreRules = []jsondiff.IgnoreRule{{Paths: []string{"/spec/replicas"}}}
	entry, err := it.manager.Apply(ctx, wanted, options)
	must(err)
	check("a field of others is let alone", entry.Action == ssa.UnchangedAction, entry)
}

func (it *story) makesAnew(ctx context.Context) {
	must(unstructured.SetNestedField(it.valve.Object, "gate", "spec", "kind"))
	_, err := it.manager.Apply(ctx, it.valve.DeepCopy(), it.options)
	check("what is immutable is refused", err != nil && strings.Contains(err.Error(), "field is immutable"), err)
	options, before := it.options, it.read(ctx).GetUID()
	options.Force = true
	entry, err := it.manager.Apply(ctx, it.valve.DeepCopy(), options)
	must(err)
	check("or made anew", entry.Action == ssa.CreatedAction && it.read(ctx).GetUID() != before, entry)
	wrong := it.valve.DeepCopy()
	must(unstructured.SetNestedField(wrong.Object, int64(900), "spec", "flow"))
	_, err = it.manager.Apply(ctx, wrong, it.options)
	check("what is invalid is told", err != nil && strings.Contains(err.Error(), "dry-run failed (Invalid)") &&
		strings.Contains(err.Error(), "spec.flow in body should be less than or equal to 100"), err)
}

func (it *story) waits(ctx context.Context) {
	short := it.wait
	short.Timeout = 300 * time.Millisecond
	must(it.condition(ctx, "False"))
	err := it.manager.Wait(it.objects, short)
	told := "Valve/plant/inlet status: 'InProgress'"
	check("what is not ready is named", err != nil && strings.Contains(err.Error(), told), err)
	must(it.condition(ctx, "True"))
	must(it.manager.Wait(it.objects, it.wait))
	fmt.Println("ready by kstatus")
}

func (it *story) condition(ctx context.Context, ready string) error {
	patch := fmt.Sprintf(`{"status":{"observedGeneration":%d,"conditions":[{"type":"Ready","status":%q}]}}`,
		it.read(ctx).GetGeneration(), ready)
	return it.api.Status().Patch(ctx, it.existing, client.RawPatch(types.MergePatchType, []byte(patch)))
}

func (it *story) moves(ctx context.Context) {
	definition := of(read(source+strings.TrimPrefix(second, "\n")), "CustomResourceDefinition")
	_, err := it.manager.Apply(ctx, definition, it.options)
	must(err)
	must(it.manager.Wait([]*unstructured.Unstructured{definition}, it.wait))
	it.options.MigrateAPIVersion = true
	it.valve.SetAPIVersion("plant.example.com/v2")
	it.existing.SetAPIVersion("plant.example.com/v2")
	must(unstructured.SetNestedField(it.valve.Object, int64(6), "spec", "flow"))
	entry, err := it.manager.Apply(ctx, it.valve.DeepCopy(), it.options)
	must(err)
	check("applied in another version", entry.Action == ssa.ConfiguredAction && flow(it.read(ctx)) == 6, entry, it.existing)
}

func (it *story) prunes(ctx context.Context) {
	set, err := it.manager.DeleteAll(ctx, it.objects, ssa.DefaultDeleteOptions())
	must(err)
	check("pruned", counts(set) == "5 deleted", set)
	must(it.manager.WaitForTermination(it.objects, it.wait))
	namespace := of(it.objects, "Namespace")
	err = it.api.Get(ctx, client.ObjectKeyFromObject(namespace), namespace.DeepCopy())
	check("and gone", errors.IsNotFound(err), err)
}

func flow(object *unstructured.Unstructured) int64 {
	found, _, _ := unstructured.NestedInt64(object.Object, "spec", "flow")
	return found
}
