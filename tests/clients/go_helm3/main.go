// Helm 3's action library installs, upgrades, rolls back and uninstalls a chart that brings its definition.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/cli"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

const name, namespace, patience = "three", "apps", 30 * time.Second

var crontabs = schema.GroupVersionResource{Group: "stable.example.com", Version: "v1", Resource: "crontabs"}

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func sees(objects dynamic.Interface, image string) {
	crontab, err := objects.Resource(crontabs).Namespace(namespace).Get(context.Background(), name, metav1.GetOptions{})
	must(err)
	if found, _, _ := unstructured.NestedString(crontab.Object, "spec", "image"); found != image {
		must(fmt.Errorf("the crontab has %s instead of %s", found, image))
	}
}

func main() {
	settings := cli.New()
	settings.SetNamespace(namespace)
	configuration := new(action.Configuration)
	must(configuration.Init(settings.RESTClientGetter(), namespace, "secrets", func(string, ...any) {}))
	rest, err := settings.RESTClientGetter().ToRESTConfig()
	must(err)
	objects := dynamic.NewForConfigOrDie(rest)
	chart, err := loader.Load(os.Args[1])
	must(err)

	install := action.NewInstall(configuration)
	install.ReleaseName, install.Namespace, install.CreateNamespace = name, namespace, true
	install.Wait, install.Timeout = true, patience
	_, err = install.Run(chart, map[string]any{})
	must(err)
	sees(objects, "first")
	fmt.Println("installed")

	upgrade := action.NewUpgrade(configuration)
	upgrade.Namespace, upgrade.Wait, upgrade.Timeout = namespace, true, patience
	_, err = upgrade.Run(name, chart, map[string]any{"image": "second", "replicas": 3})
	must(err)
	sees(objects, "second")
	fmt.Println("upgraded")

	rollback := action.NewRollback(configuration)
	rollback.Version, rollback.Wait, rollback.Timeout = 1, true, patience
	must(rollback.Run(name))
	sees(objects, "first")
	fmt.Println("rolled back")

	if _, err = upgrade.Run(name, chart, map[string]any{"replicas": 99}); err == nil {
		must(errors.New("an upgrade that the schema forbids succeeded"))
	}
	fmt.Println("refused:", err)

	uninstall := action.NewUninstall(configuration)
	uninstall.Wait, uninstall.Timeout = true, patience
	_, err = uninstall.Run(name)
	must(err)
	_, err = objects.Resource(crontabs).Namespace(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		must(fmt.Errorf("the crontab is still there: %w", err))
	}
	fmt.Println("uninstalled")
}
