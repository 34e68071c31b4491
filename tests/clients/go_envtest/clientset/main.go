// The typed clientset of definitions, which speaks protobuf: create, status, update, patch, list, watch, delete.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
)

const name = "crontabs.stable.example.com"

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func definition() *v1.CustomResourceDefinition {
	minimum, pattern := 1.0, `^(\d+|\*)$`
	spec := v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{
		"cronSpec": {Type: "string", Pattern: pattern, Default: &v1.JSON{Raw: []byte(`"*"`)}},
		"replicas": {Type: "integer", Minimum: &minimum},
		"port":     {XIntOrString: true},
		"list":     {Type: "array", Items: &v1.JSONSchemaPropsOrArray{Schema: &v1.JSONSchemaProps{Type: "string"}}},
		"map": {Type: "object", AdditionalProperties: &v1.JSONSchemaPropsOrBool{
			Schema: &v1.JSONSchemaProps{Type: "string", Enum: []v1.JSON{{Raw: []byte(`"a"`)}, {Raw: []byte(`"b"`)}}},
		}},
		"rule": {Type: "integer", XValidations: v1.ValidationRules{{Rule: "self > 0", Message: "must be positive"}}},
	}}
	return &v1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "night"}},
		Spec: v1.CustomResourceDefinitionSpec{
			Group: "stable.example.com", Scope: v1.NamespaceScoped,
			Names: v1.CustomResourceDefinitionNames{Plural: "crontabs", Kind: "CronTab", ShortNames: []string{"ct"}},
			Versions: []v1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &v1.CustomResourceValidation{OpenAPIV3Schema: &v1.JSONSchemaProps{
					Type: "object", Properties: map[string]v1.JSONSchemaProps{"spec": spec},
				}},
				Subresources:             &v1.CustomResourceSubresources{Status: &v1.CustomResourceSubresourceStatus{}},
				AdditionalPrinterColumns: []v1.CustomResourceColumnDefinition{{Name: "Spec", Type: "string", JSONPath: ".spec.cronSpec"}},
			}},
		},
	}
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(err)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	definitions := clientset.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	created, err := definitions.Create(ctx, definition(), metav1.CreateOptions{FieldManager: "story"})
	must(err)
	spec := created.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	if string(spec.Properties["cronSpec"].Default.Raw) != `"*"` || !spec.Properties["port"].XIntOrString {
		must(fmt.Errorf("the schema came back otherwise: %+v", spec))
	}
	watch, err := definitions.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	must(err)
	for event := range watch.ResultChan() {
		seen, ok := event.Object.(*v1.CustomResourceDefinition)
		if !ok {
			must(fmt.Errorf("%s %+v", event.Type, event.Object))
		}
		if established(seen) {
			break
		}
	}
	watch.Stop()
	got, err := definitions.Get(ctx, name, metav1.GetOptions{})
	must(err)
	got.Spec.Versions[0].Deprecated = true
	updated, err := definitions.Update(ctx, got, metav1.UpdateOptions{})
	must(err)
	if updated.Generation != got.Generation+1 {
		must(fmt.Errorf("generation %d after %d", updated.Generation, got.Generation))
	}
	if _, err = definitions.Update(ctx, created, metav1.UpdateOptions{}); err == nil {
		must(fmt.Errorf("a stale update was taken"))
	}
	_, err = definitions.Patch(ctx, name, types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{})
	must(err)
	listed, err := definitions.List(ctx, metav1.ListOptions{LabelSelector: "team=night,x=y", Limit: 10})
	must(err)
	if len(listed.Items) != 1 || !listed.Items[0].Spec.Versions[0].Deprecated {
		must(fmt.Errorf("listed %+v", listed.Items))
	}
	bad := definition()
	bad.Spec.Scope = "Everywhere"
	bad.Name = "wrong"
	if _, err = definitions.Create(ctx, bad, metav1.CreateOptions{}); err == nil {
		must(fmt.Errorf("a wrong definition was taken"))
	}
	fmt.Println("refused:", err)
	must(definitions.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "x=y"}))
	fmt.Println("done")
}

func established(seen *v1.CustomResourceDefinition) bool {
	for _, condition := range seen.Status.Conditions {
		if condition.Type == v1.Established && condition.Status == v1.ConditionTrue {
			return true
		}
	}
	return false
}
