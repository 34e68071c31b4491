import io.fabric8.kubernetes.api.model.Namespaced;
import io.fabric8.kubernetes.client.CustomResource;
import io.fabric8.kubernetes.model.annotation.Group;
import io.fabric8.kubernetes.model.annotation.Version;

/** The kind that the story brings with it. */
@Group("sdk.example.com")
@Version("v1")
public final class Boiler extends CustomResource<Boiler.Spec, Boiler.Status> implements Namespaced {
  static final String DEFINITION =
      """
      apiVersion: apiextensions.k8s.io/v1
      kind: CustomResourceDefinition
      metadata:
        name: boilers.sdk.example.com
      spec:
        group: sdk.example.com
        scope: Namespaced
        names: {kind: Boiler, plural: boilers, singular: boiler}
        versions:
          - name: v1
            served: true
            storage: true
            subresources: {status: {}}
            schema:
              openAPIV3Schema:
                type: object
                properties:
                  spec: {type: object, properties: {heat: {type: integer}}}
                  status: {type: object, properties: {heat: {type: integer}, seen: {type: integer}}}
      """;

  public static final class Spec {
    public Integer heat;
  }

  public static final class Status {
    public Integer heat;
    public Long seen;
  }
}
