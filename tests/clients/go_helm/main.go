// Helm's action library installs, upgrades, rolls back and uninstalls a chart that brings its definition: once with
// server-side apply (Helm 4's way), once without (Helm 3's).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

const namespace, patience = "apps", 30 * time.Second

var (
	crontabs   = schema.GroupVersionResource{Group: "stable.example.com", Version: "v1", Resource: "crontabs"}
	configmaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

type story struct {
	configuration *action.Configuration
	objects       dynamic.Interface
	chart         chart.Charter
	serverSide    bool
	name          string
}

func (s *story) sees(image string, replicas int64) {
	ctx := context.Background()
	crontab, err := s.objects.Resource(crontabs).Namespace(namespace).Get(ctx, s.name, metav1.GetOptions{})
	must(err)
	found, _, _ := unstructured.NestedString(crontab.Object, "spec", "image")
	number, _, _ := unstructured.NestedInt64(crontab.Object, "spec", "replicas")
	if found != image || number != replicas {
		must(fmt.Errorf("the crontab has %s and %d instead of %s and %d", found, number, image, replicas))
	}
	config, err := s.objects.Resource(configmaps).Namespace(namespace).Get(ctx, s.name, metav1.GetOptions{})
	must(err)
	if data, _, _ := unstructured.NestedString(config.Object, "data", "image"); data != image {
		must(fmt.Errorf("the ConfigMap has %s instead of %s", data, image))
	}
}

func (s *story) run() {
	install := action.NewInstall(s.configuration)
	install.ReleaseName, install.Namespace, install.CreateNamespace = s.name, namespace, true
	install.ServerSideApply, install.WaitStrategy, install.Timeout = s.serverSide, kube.StatusWatcherStrategy, patience
	_, err := install.Run(s.chart, map[string]any{})
	must(err)
	s.sees("first", 1)
	fmt.Println(s.name, "installed")

	upgrade := action.NewUpgrade(s.configuration)
	upgrade.Namespace, upgrade.WaitStrategy, upgrade.Timeout = namespace, kube.StatusWatcherStrategy, patience
	_, err = upgrade.Run(s.name, s.chart, map[string]any{"image": "second", "replicas": 3})
	must(err)
	s.sees("second", 3)
	fmt.Println(s.name, "upgraded")

	rollback := action.NewRollback(s.configuration)
	rollback.Version, rollback.WaitStrategy, rollback.Timeout = 1, kube.StatusWatcherStrategy, patience
	must(rollback.Run(s.name))
	s.sees("first", 1)
	fmt.Println(s.name, "rolled back")

	refused := action.NewUpgrade(s.configuration)
	refused.Namespace, refused.WaitStrategy = namespace, kube.HookOnlyStrategy
	if _, err = refused.Run(s.name, s.chart, map[string]any{"replicas": 99}); err == nil {
		must(errors.New("an upgrade that the schema forbids succeeded"))
	}
	fmt.Println(s.name, "refused:", err)

	history, err := action.NewHistory(s.configuration).Run(s.name)
	must(err)
	if len(history) != 4 {
		must(fmt.Errorf("%d revisions instead of 4", len(history)))
	}
	uninstall := action.NewUninstall(s.configuration)
	uninstall.WaitStrategy, uninstall.Timeout = kube.StatusWatcherStrategy, patience
	_, err = uninstall.Run(s.name)
	must(err)
	_, err = s.objects.Resource(crontabs).Namespace(namespace).Get(context.Background(), s.name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		must(fmt.Errorf("the crontab is still there: %w", err))
	}
	fmt.Println(s.name, "uninstalled")
}

func main() {
	settings := cli.New()
	settings.SetNamespace(namespace)
	configuration := action.NewConfiguration()
	must(configuration.Init(settings.RESTClientGetter(), namespace, "secrets"))
	rest, err := settings.RESTClientGetter().ToRESTConfig()
	must(err)
	loaded, err := loader.Load(os.Args[1])
	must(err)
	objects := dynamic.NewForConfigOrDie(rest)
	(&story{configuration, objects, loaded, true, "server-side"}).run()
	(&story{configuration, objects, loaded, false, "client-side"}).run()
	fmt.Println("done")
}
