import Access
import ByteStreams
import Consumers
import Inbox
import Sessions

extension Route {
  /// Throws 403 unless the grant has a scope for this route. Does not check the session: the look-up of the session has
  /// done that.
  func authorize(_ grant: Grant?) throws(Problem) {
    guard let scope else { return }
    guard let grant else { preconditionFailure("a request without credentials has no such route") }
    let needed: Scopes = scope.isEmpty ? [.send, .receive, .call, .admin] : scope
    if !grant.scopes.isDisjoint(with: needed) { return }
    let held = grant.scopes.isEmpty ? "none" : "'\(grant.scopes.text)'"
    let expectation = needed.text.contains(" ") ? "any of the scopes" : "the scope"
    throw Problem(
      .insufficientScope,
      "this request needs \(expectation) '\(needed.text)', and its credentials have \(held)",
      .challenge(.insufficientScope(needed)))
  }
}

extension Grant {
  /// Whether the grant allows all sessions, topics and scopes, like the grant of every client without authentication.
  var isUnrestricted: Bool { sessions.isAll && topics.isAll && scopes == [.send, .receive, .call, .admin] }

  func allows(_ session: Session) -> Bool {
    (sessions.isAll || sessions.contains(session.name)) && owns(session)
  }

  /// Throws 403 unless the grant allows all topics of `pattern`.
  func checkTopics(of pattern: Span<UInt8>) throws(Problem) {
    if topics.isAll || topics.contains(pattern: pattern) { return }
    throw Self.topicNotAllowed("the topic '\(pattern.excerpt())' is not within them")
  }

  /// Throws 403 unless the grant allows everything that a consumer with these topics receives. Without topics, a
  /// consumer receives everything.
  func checkConsumer(topics patterns: [String]) throws(Problem) {
    if topics.isAll { return }
    if patterns.isEmpty { throw Self.topicNotAllowed("this consumer has all: create one with 'topics'") }
    for pattern in patterns { try checkTopics(of: pattern.utf8Span.span) }
  }

  /// Whether a consumer is visible to the client: the grant allows all its topics.
  func allows(_ consumer: ConsumerStatus) -> Bool {
    topics.isAll
      || !consumer.settings.topics.isEmpty
        && consumer.settings.topics.allSatisfy { topics.contains(pattern: $0.utf8Span.span) }
  }

  /// Whether the client may receive a push. A consumer may still have pushes of topics that a later change of its
  /// settings removed.
  func allows(_ message: RetainedMessage) -> Bool {
    if topics.isAll { return true }
    guard let topic = message.topic else { return false }
    return topics.contains(topic.span)
  }

  /// The filter of a request that names no topics; nil if all topics are allowed.
  var topicFilter: TopicFilter? {
    if topics.isAll { return nil }
    return TopicFilter(granted: topics.elements)
  }

  private static func topicNotAllowed(_ reason: String) -> Problem {
    Problem(.insufficientScope, "the credentials allow only some topics, and \(reason)")
  }
}
