import Access
import ByteStreams
import Consumers
import HTTPCodec
import Inbox
import Sessions

/// A consumer in the path of a request, and the time that the request may take.
struct ConsumerTarget {
  let session: Session
  let name: String
  /// The time that a proxy on the path allows for the request.
  let longestWait: TimeSpan
  /// How long the request may wait until its change is stored.
  let storeWait: TimeSpan

  init(_ name: Span<UInt8>, of session: Session, _ head: borrowing HTTPRequestHead) {
    self.session = session
    self.name = name.text()
    longestWait = WaitParameter.left(of: WaitParameter.granted(TimeSpan(nanoseconds: .max), for: head), for: head)
    storeWait = WaitParameter.storeWait(for: head)
  }
}

extension ConsumerTarget {
  /// Throws 409 if the consumer is a webhook. Only the gateway may act as its worker, or change it.
  func checkIsOfClients() throws(Problem) {
    guard session.webhooks?.contains(name) == true else { return }
    throw Problem(
      .consumerConflict,
      "consumer '\(name)' is a webhook, whose worker is the gateway: change it in the configuration; GET \(path) shows its state, and its dead letters can be read, removed and retried"
    )
  }

  /// Returns the result of `change`. Throws the problem of the response if the table of consumers refuses the change.
  func refusing<Result>(_ change: () throws(ConsumerRefusal) -> Result) throws(Problem) -> Result {
    do throws(ConsumerRefusal) { return try change() } catch { throw problem(error) }
  }

  /// Throws 403 if the consumer has topics that the grant does not allow. This is checked again at the end of a held
  /// receive, since the topics may have changed while it was held.
  func check(_ grant: Grant?) throws(Problem) {
    guard let grant, !grant.topics.isAll, let settings = session.consumers.settings(of: name) else { return }
    try grant.checkConsumer(topics: settings.topics)
  }

  /// The path of the consumer.
  var path: String {
    session.name == Session.defaultName ? "/v1/consumers/\(name)" : "/v1/sessions/\(session.name)/consumers/\(name)"
  }

  func problem(_ refusal: ConsumerRefusal) -> Problem {
    switch refusal {
    case .unknown:
      Problem(.notFound, "consumer '\(name)' does not exist, or is removed: create it with PUT \(path)")
    case .differs(let settings):
      Problem(
        .consumerConflict,
        "consumer '\(name)' has share \(settings.isWorkSharing) and order_by \(settings.order?.text ?? "null"), which cannot be changed: use the same, another name, or delete it first"
      )
    case .tooMany:
      Problem(
        .tooManyConsumers,
        "this session has \(ConsumerTable.maximumConsumers) consumers, the maximum, and this client its share: delete one, or use a shorter 'idle' so that unused ones are removed"
      )
    case .outOfMemory:
      Problem(
        .tooManyConsumers,
        "the consumers of all sessions that clients create use all memory for them: delete some, or create this one with fewer or shorter topics"
      )
    case .isWorkSharing:
      Problem(
        .consumerConflict,
        "consumer '\(name)' is work-sharing, and 'ack' is for other consumers: acknowledge leases with POST \(path)/settle"
      )
    case .isExclusive:
      Problem(
        .consumerConflict,
        "consumer '\(name)' is not work-sharing, and has no leases and dead letters: acknowledge with POST \(path)/receive?ack=CURSOR"
      )
    case .notStored:
      Problem(
        .storeFailed,
        "the change of consumer '\(name)' cannot be stored now: repeat the request after the time in Retry-After. A lease that was settled nevertheless cannot be settled otherwise"
      )
    case .superseded:
      Problem(
        .superseded, "a later receive of consumer '\(name)' has taken over: only one reader may receive at a time")
    }
  }
}
