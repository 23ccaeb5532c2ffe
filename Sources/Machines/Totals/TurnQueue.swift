/// Elements of several users, who take turns. However many elements one user adds, the next element of another user
/// waits for at most one element of each user.
///
/// The elements of one user keep their order.
package struct TurnQueue<Element> {
  /// By user. A user is in `turns` if and only if it has an entry here. The entry may be empty.
  private var elements: [TotalUser: [Element]] = [:]
  /// Users in the order of their turns.
  private var turns: [TotalUser] = []

  package init() {}

  package mutating func append(_ element: Element, by user: TotalUser) {
    if elements[user] == nil { turns.append(user) }
    elements[user, default: []].append(element)
  }

  package var count: Int { elements.values.reduce(0) { $0 + $1.count } }
  package var isEmpty: Bool { elements.values.allSatisfy(\.isEmpty) }

  /// Removes the next element.
  package mutating func next() -> Element? { first { _ in true }.flatMap { removeFirst(of: $0.user) } }

  /// The first element of the next user for whom `condition` is true. The search takes a step for each user before that
  /// user.
  package mutating func first(where condition: (TotalUser) -> Bool) -> (user: TotalUser, element: Element)? {
    var index = 0
    while index < turns.count {
      let user = turns[index]
      guard let element = elements[user]?.first else {
        elements[user] = nil
        turns.remove(at: index)
        continue
      }
      if condition(user) { return (user, element) }
      index += 1
    }
    return nil
  }

  /// Removes the first element of a user, whose turn ends.
  package mutating func removeFirst(of user: TotalUser) -> Element? {
    guard let index = turns.firstIndex(of: user), var rest = elements.removeValue(forKey: user) else { return nil }
    turns.remove(at: index)
    guard !rest.isEmpty else { return nil }
    let element = rest.removeFirst()
    if !rest.isEmpty {
      elements[user] = rest
      turns.append(user)
    }
    return element
  }

  /// Removes the elements of a user for which `condition` is true.
  package mutating func removeAll(of user: TotalUser, where condition: (Element) -> Bool) {
    elements[user]?.removeAll(where: condition)
  }
}
