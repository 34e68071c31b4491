package main

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

const group = "plant.example.com"

var (
	v1 = schema.GroupVersion{Group: group, Version: "v1"}
	v2 = schema.GroupVersion{Group: group, Version: "v2"}
)

type ValveSpec struct {
	Flow     int32  `json:"flow"`
	Replicas *int32 `json:"replicas,omitempty"`
	Zone     string `json:"zone,omitempty"`
}

type ValveStatus struct {
	Replicas   int32              `json:"replicas,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Valve is the hub, of v2.
type Valve struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ValveSpec   `json:"spec,omitempty"`
	Status            ValveStatus `json:"status,omitempty"`
}

type ValveList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Valve `json:"items"`
}

// OldValve is the same kind in v1: its flow is a text.
type OldValve struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Flow     string `json:"flow"`
		Replicas *int32 `json:"replicas,omitempty"`
		Zone     string `json:"zone,omitempty"`
	} `json:"spec,omitempty"`
	Status ValveStatus `json:"status,omitempty"`
}

type OldValveList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []OldValve `json:"items"`
}

func (in *Valve) Hub() {}

func (in *OldValve) ConvertTo(hub conversion.Hub) error {
	out := hub.(*Valve)
	out.ObjectMeta, out.Status = in.ObjectMeta, in.Status
	out.Spec.Replicas, out.Spec.Zone = in.Spec.Replicas, in.Spec.Zone
	_, err := fmt.Sscanf(in.Spec.Flow, "%d l/s", &out.Spec.Flow)
	return err
}

func (in *OldValve) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*Valve)
	in.ObjectMeta, in.Status = from.ObjectMeta, from.Status
	in.Spec.Flow, in.Spec.Replicas, in.Spec.Zone = fmt.Sprintf("%d l/s", from.Spec.Flow), from.Spec.Replicas, from.Spec.Zone
	return nil
}

func copied[T any](in *T) *T {
	out := new(T)
	data, err := runtime.DefaultUnstructuredConverter.ToUnstructured(in)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(data, out)
	}
	if err != nil {
		panic(err)
	}
	return out
}

func (in *Valve) DeepCopyObject() runtime.Object        { return copied(in) }
func (in *ValveList) DeepCopyObject() runtime.Object    { return copied(in) }
func (in *OldValve) DeepCopyObject() runtime.Object     { return copied(in) }
func (in *OldValveList) DeepCopyObject() runtime.Object { return copied(in) }

func addToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(v2, &Valve{}, &ValveList{})
	scheme.AddKnownTypeWithName(v1.WithKind("Valve"), &OldValve{})
	scheme.AddKnownTypeWithName(v1.WithKind("ValveList"), &OldValveList{})
	metav1.AddToGroupVersion(scheme, v1)
	metav1.AddToGroupVersion(scheme, v2)
}

func definition() *apiextensionsv1.CustomResourceDefinition {
	version := func(name, flow string, storage bool, selectable ...string) apiextensionsv1.CustomResourceDefinitionVersion {
		var fields []apiextensionsv1.SelectableField
		for _, path := range selectable {
			fields = append(fields, apiextensionsv1.SelectableField{JSONPath: path})
		}
		object := func(properties map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
			return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}
		}
		number, text := apiextensionsv1.JSONSchemaProps{Type: "integer"}, apiextensionsv1.JSONSchemaProps{Type: "string"}
		condition := object(map[string]apiextensionsv1.JSONSchemaProps{
			"type": text, "status": text, "reason": text, "message": text, "observedGeneration": number,
			"lastTransitionTime": {Type: "string", Format: "date-time"},
		})
		condition.Required = []string{"type", "status"}
		list := "map"
		root := object(map[string]apiextensionsv1.JSONSchemaProps{
			"spec": object(map[string]apiextensionsv1.JSONSchemaProps{"flow": {Type: flow}, "replicas": number, "zone": text}),
			"status": object(map[string]apiextensionsv1.JSONSchemaProps{
				"replicas": number,
				"conditions": {
					Type: "array", XListType: &list, XListMapKeys: []string{"type"},
					Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &condition},
				},
			}),
		})
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: storage,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &root},
			Subresources: &apiextensionsv1.CustomResourceSubresources{
				Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				Scale: &apiextensionsv1.CustomResourceSubresourceScale{
					SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas",
				},
			},
			SelectableFields: fields,
		}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "valves." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "valves", Singular: "valve", Kind: "Valve", ListKind: "ValveList", ShortNames: []string{"va"},
				Categories: []string{"all"},
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				version("v1", "string", false, ".spec.zone"), version("v2", "integer", true, ".spec.zone", ".spec.flow"),
			},
		},
	}
}
