import io.fabric8.kubernetes.api.model.Namespaced;
import io.fabric8.kubernetes.client.CustomResource;
import io.fabric8.kubernetes.model.annotation.Group;
import io.fabric8.kubernetes.model.annotation.ShortNames;
import io.fabric8.kubernetes.model.annotation.Version;
import java.util.List;

/** The kind that the story brings with it. */
@Group("java.example.com")
@Version("v1")
@ShortNames("va")
public final class Valve extends CustomResource<Valve.Spec, Valve.Status> implements Namespaced {
  static final String DEFINITION =
      """
      apiVersion: apiextensions.k8s.io/v1
      kind: CustomResourceDefinition
      metadata:
        name: valves.java.example.com
      spec:
        group: java.example.com
        scope: Namespaced
        names: {kind: Valve, plural: valves, singular: valve, shortNames: [va]}
        versions:
          - name: v1
            served: true
            storage: true
            subresources:
              status: {}
              scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
            additionalPrinterColumns:
              - {name: Room, type: string, jsonPath: .spec.room}
            selectableFields:
              - jsonPath: .spec.room
            schema:
              openAPIV3Schema:
                type: object
                properties:
                  spec:
                    type: object
                    required: [room]
                    properties:
                      room: {type: string}
                      replicas: {type: integer, default: 1, maximum: 10}
                      zones: {type: array, x-kubernetes-list-type: set, items: {type: string}}
                    x-kubernetes-validations:
                      - {rule: "self.room != 'none'", message: there is no such room}
                  status:
                    type: object
                    properties:
                      replicas: {type: integer}
                      said: {type: string}
      """;

  public static final class Spec {
    public String room;
    public Integer replicas;
    public List<String> zones;
  }

  public static final class Status {
    public Integer replicas;
    public String said;
  }

  static Valve of(String name, String room) {
    var made = new Valve();
    made.getMetadata().setName(name);
    made.setSpec(new Spec());
    made.getSpec().room = room;
    return made;
  }
}
