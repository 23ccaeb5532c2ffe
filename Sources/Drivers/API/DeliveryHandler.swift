import ByteStreams
import HTTPCodec
import HTTPServer
import JSONCodec
import Metrics
import Outbox
import Reactor
import Sessions
import Upstream

extension API {
  /// `GET /v1/deliveries/{id}`: the state of a message, or its final state as soon as it has one, within `wait`.
  func respond(
    with sequence: UInt64, of session: Session, wait: TimeSpan, at now: MonotonicTime, into response: inout Response
  ) throws(ProblemError) -> Outcome {
    let delivery = WaitingDelivery(api: self, session: session, sequence: sequence, deadline: now + wait)
    if wait > .zero, !delivery.hasNews { return .wait(delivery) }
    delivery.finish(at: now, into: &response)
    return .respond
  }
}

/// A `GET /v1/deliveries/{id}` that waits until the state of the message is final.
private struct WaitingDelivery: WaitingRequest {
  let api: API
  let session: Session
  let sequence: UInt64
  let deadline: MonotonicTime

  var heldCount: Gauge? { nil }
  var bell: Bell { session.upstream.deliveryBell }

  /// A message that is not known any more had its end long ago.
  var hasNews: Bool { session.upstream.isSettled(sequence) }

  /// Any message that ends rings it.
  var sharesBell: Bool { true }

  func finish(at now: MonotonicTime, into response: inout Response) {
    guard let state = session.upstream.deliveryState(sequence) else {
      let remembered = session.upstream.rememberedDeliveries
      api.respond(
        with: Problem(
          .notFound, detail: "this delivery is not known any more, or never was; the last \(remembered) are"),
        into: &response)
      return
    }
    response.begin(.ok, "application/json")
    DeliveryJSON.begin(sequence, of: session, state, into: &response.content.text)
    response.content.text.append("}\n" as StaticString)
  }

  func abandon() {}
}

/// What responses say of a delivery: `{"id":"…","state":"…","session":"…"}`.
enum DeliveryJSON {
  /// All but the final brace.
  static func begin(
    _ sequence: UInt64, of session: Session, _ state: DeliveryState, into output: inout ByteQueue
  ) {
    output.append("{\"id\":\"" as StaticString)
    output.append(session.deliveryPrefix)
    output.append(decimal: sequence)
    output.append("\",\"state\":\"" as StaticString)
    output.append(state.name)
    output.append("\",\"session\":\"" as StaticString)
    // A name has no character that JSON escapes (SessionName), and escaping would copy it for each message.
    output.append(session.name)
    output.append("\"" as StaticString)
  }
}
